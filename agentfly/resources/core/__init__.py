"""The scheduling core: events and the time in, actions out. No Ray, no clock, no threads, no I/O."""
