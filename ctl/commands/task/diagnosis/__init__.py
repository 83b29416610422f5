"""Commands that show where the time of tasks goes: `why` and `top`."""
