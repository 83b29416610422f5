"""The demonstration that deploy/demo.sh runs.

It uses the test suite's servers, writer and judge (tests/support), so that it shows what the tests
check; none of those shares code with the program that is shown.
"""
