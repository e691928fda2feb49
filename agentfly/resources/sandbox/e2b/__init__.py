"""The provider `e2b`: sandboxes that are microVMs of E2B, or of whatever speaks its API."""
