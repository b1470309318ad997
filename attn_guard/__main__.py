"""``python -m attn_guard``"""

from __future__ import annotations

import sys

from attn_guard.cli import main

sys.exit(main())
