"""The provider `docker`: sandboxes that are containers of a Docker engine, or of another one that speaks its API."""
