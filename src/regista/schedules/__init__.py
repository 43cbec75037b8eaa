"""Schedules: when something should happen. Pure: no clock is read and nothing is stored here."""
