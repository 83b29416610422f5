"""Small deliberate defects of the product, one patch each: every one must be found by a test."""
