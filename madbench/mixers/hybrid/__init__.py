"""Family of hybrids: models whose layers have different mixers, such as 3xKDA/S-p."""
