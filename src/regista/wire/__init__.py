"""The shapes of what travels: JSON and msgpack become records here, and records become bytes again."""
