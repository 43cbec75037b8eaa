"""Chores that keep jobs and workers going: deadlines, leases, recovery, retention."""
