"""What workers and orchestrators send each other: JSON messages over HTTP, frames over the stream. Shared with the SDK."""
