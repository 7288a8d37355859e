"""The family of hybrids: models whose layers have different mixers, with labels such as ``3xKDA/S-p``."""
