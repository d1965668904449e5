"""`make bench`: every figure of the README, one after the other; `PEERS=1` for other routers beside us."""

import sys

from tests.bench import decide, encoding, path

decide.main()
encoding.main()
path.main(sys.argv[1:])
