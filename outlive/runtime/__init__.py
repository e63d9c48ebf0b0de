"""The asynchronous runtime: memory, command buffers, streams. It knows nothing of ops and imports nothing above it."""
