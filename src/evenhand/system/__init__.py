"""The machine: files, network, processes, threads, terminal and libraries; and the version, in one place."""

__version__ = "0.2.0"
