"""Recipes, run from a checkout; `flags/` holds every flagfile."""
