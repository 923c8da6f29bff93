"""What the package needs of the machine: files, hashing, threads, parallel maps, memory, progress, optional libraries."""
