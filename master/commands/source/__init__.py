"""Commands that concern sources.

operate creates, shows and stops them; update changes them while their tasks run, by what changes defines for each key;
transfer moves one to another worker; relay pauses and purges relay logs.
"""
