"""`make bench`: every figure of the README, one after the other."""

from tests.bench import decide, encoding, path

for part in (decide, encoding, path):
    part.main()
