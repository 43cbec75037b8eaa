"""The HTTP edge: thin handlers over the services below."""
