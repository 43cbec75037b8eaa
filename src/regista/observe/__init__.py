"""Observe: what is measured and traced. Logic emits; this room listens, and nothing depends on its listening."""
