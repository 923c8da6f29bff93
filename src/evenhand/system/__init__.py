"""What the package needs from the machine: files, hashing, threads, memory, progress, optional libraries."""
