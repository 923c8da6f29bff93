"""What the package needs of the machine: files, hashing, threads, memory, progress, optional libraries."""
