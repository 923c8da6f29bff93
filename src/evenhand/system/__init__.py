"""What the package needs of the machine: files, fingerprints, threads, memory, progress, optional libraries."""
