"""A firewall that is applied, confirmed, rolled back and watched: `hitables apply` and its companions."""
