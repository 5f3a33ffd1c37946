"""Where figures in the prose of pages come from; `test_figures.py` compares them."""

from __future__ import annotations

ANYWHERE = {
    "15 s": "locks.otp.options.NET_TICKTIME",
    "15 seconds": "locks.otp.options.NET_TICKTIME",
}
"""What each page may name: the most important default."""

ONLY_BOUNDS = {
    "docs/bounds.md": "What bounds each message",
    "docs/network.md": "What one node may have",
}
"""Pages, and their headings below which each number is a bound."""

BOUNDS: dict[str, dict[str, str]] = {
    "docs/actors.md": {"64 KiB": "locks.core.parts.LARGEST_PART"},
    "docs/algorithm_nodes.md": {
        "ten seconds": "locks.otp.tunnel.channels.LINGER",
        "5 seconds": "locks.otp.tunnel.channels.LONGEST",
        "16 KiB": "locks.otp.tunnel.messages.NARROW",
        "1 MiB": "locks.otp.tunnel.channels.MOST_WAITING",
    },
    "docs/bounds.md": {
        "256": "locks.lock_ids.MOST_ELEMENTS",
        "16": "locks.lock_ids.DEEPEST",
        "64 KiB": "locks.lock_ids.LARGEST locks.core.parts.LARGEST_PART locks.otp.process.reasons.LONGEST_REASON "
        "locks.otp.tunnel.messages.WINDOW",
        "16 MiB": "locks.otp.distribution.FRAME_LIMIT",
        "100,000": "locks.otp.bytes.etf.MOST_PARTS",
        "1,000": "locks.ranges.MOST_IN_KNOT locks.ranges.LONGEST_TEXT locks.groups.wire.PIECE locks.node.original.agents.MOST_WATCHERS",
        "100": "locks.core.parts.MOST_RECORDS locks.wire.pages.MOST_ITEMS locks.node.observing.record.MOST_ITEMS",
        "16 KiB": "locks.otp.tunnel.messages.NARROW locks.otp.tunnel.messages.CHUNK locks.wire.pages.LARGEST_PAGE "
        "locks.node.observing.record.LARGEST_PAGE",
        "1 MiB": "locks.otp.tunnel.channels.MOST_WAITING",
        "50": "locks.ranges.MOST_EDGES locks.node.observing.record.MOST_EDGES",
        "400": "locks.node.original.peers.MOST_ASKED",
        "200": "locks.core.parts.MOST_REPORTED",
        "4,096": "locks.otp.process.reasons.LONGEST_TEXT",
        "255": "locks.lock_ids.LONGEST_ATOM",
        "32,768": "locks.ownership.messages.MOST_GROUPS",
        "2,000": "locks.node.original.agents.MOST_TOLD",
    },
    "docs/cautionary_model.md": {
        "8,030": "tests/examples/test_cautionary_tale.py",
        "1,764": "tests/examples/test_cautionary_tale.py",
        "40,452": "tests/examples/test_cautionary_tale.py",
        "451,343": "tests/examples/test_cautionary_tale.py",
        "171,933": "tests/examples/test_cautionary_tale.py",
        "27,111": "tests/examples/test_cautionary_stores.py",
        "100,000": "examples.cautionary_tale.drafts.MOST_LINES",
    },
    "docs/cautionary_tale.md": {"2,003": "tests/examples/test_cautionary_stores.py"},
    "docs/clients.md": {
        "64 KiB": "locks.otp.tunnel.messages.WINDOW",
        "16 KiB": "locks.otp.tunnel.messages.NARROW",
    },
    "docs/cluster.md": {"five seconds": "locks.program.default.CONNECTED_WITHIN"},
    "docs/commands.md": {
        "two seconds": "locks.cli.observing.MOMENT",
        "24 hours": "locks/cli/history.py",
        "ten seconds": "locks.cli.joining.PATIENCE",
    },
    "docs/deadlocks.md": {"2 ms": "benchmarks.crowd.HOLD"},
    "docs/deploy.md": {"ten seconds": "deploy/kubernetes.yaml"},
    "docs/howto.md": {"64 KiB": "locks.lock_ids.LARGEST", "8 bytes": "locks.lock_ids._WORD"},
    "docs/kv_store.md": {
        "1,000": "examples.kv_store.keys.LONGEST_KEY",
        "100,000,000": "examples.kv_store.keys.LONGEST",
        "1,000,000": "locks.mvcc.table.MAX_LOCKS",
        "100,000": "locks.mvcc.table.MAX_WAITERS",
    },
    "docs/monitoring.md": {"ten seconds": "locks.program.audit_log.LOOK"},
    "docs/mvcc.md": {
        "1,000": "locks.mvcc.contention.KEPT",
        "1,000,000": "locks.mvcc.table.MAX_LOCKS",
        "100,000": "locks.mvcc.table.MAX_WAITERS",
        "10,000": "locks.mvcc.table.REMEMBERED",
    },
    "docs/mvcc_reference.md": {"10,000": "locks.mvcc.table.REMEMBERED"},
    "docs/network.md": {
        "ten minutes": "locks.otp.distribution.FORGET",
        "16 MiB": "locks.otp.distribution.FRAME_LIMIT locks.otp.distribution.SEND_LIMIT",
        "4 MiB": "locks.otp.links.link.FULL",
        "60 seconds": "locks.otp.options.OTP_NET_TICKTIME",
        "1 to 4 seconds": "locks.otp.admission.rivals.SIGNS",
        "1,000": "locks.otp.names.address_book.NAMES locks.ranges.LONGEST_TEXT locks.otp.links.budgets.Limits._field_defaults.watches",
        "10,000": "locks.otp.names.address_book.LARGEST locks.ranges.MOST_RECORDS locks.otp.links.budgets.MOST_CALLS",
        "1 day": "locks.wire.versions.TAKEN",
        "2 days": "locks.wire.versions.TOLD",
        "3 days": "locks.wire.versions.ASKED",
        "255": "locks.ranges.LONGEST_NAME",
        "256": "locks.lock_ids.MOST_ELEMENTS",
        "16": "locks.lock_ids.DEEPEST",
        "64 KiB": "locks.lock_ids.LARGEST locks.otp.tunnel.messages.WINDOW",
        "63": "locks/ranges.py",
        "4,096": "locks.ranges.PLACE_BITS",
        "100,000": "locks.groups.table.MOST locks.otp.bytes.etf.MOST_PARTS locks.otp.links.budgets.MOST_MEMBERSHIPS",
        "50": "locks.ranges.MOST_EDGES",
        "64": "locks.otp.bytes.etf.DEFAULT.depth",
        "1,024 bytes": "locks.otp.bytes.etf.DEFAULT.integer_bytes",
        "100": "locks.otp.bytes.etf_decode.MOST_ALIKE",
        "20,000": "locks.otp.links.budgets.MOST_MONITORS locks.otp.links.budgets.MOST_LINKS locks.otp.links.budgets.Limits._field_defaults.transactions",
        "1,000,000": "locks.otp.links.budgets.Limits._field_defaults.requests locks.otp.links.budgets.Limits._field_defaults.waits",
        "128": "locks.otp.tunnel.relay.MOST_EACH",
        "16,384": "locks.otp.tunnel.relay.MOST_IN_ALL",
        "16 KiB": "locks.otp.tunnel.messages.NARROW",
        "1 MiB": "locks.otp.tunnel.channels.MOST_WAITING locks.otp.links.backlog.AHEAD",
        "0.25 ms": "locks.otp.links.budgets.SLICE",
        "4 KiB": "locks.otp.links.backlog.LARGE",
        "1 ms": "locks.otp.links.budgets.LONG",
        "3 s": "locks.otp.links.budgets.LONGEST_PAUSE",
    },
    "docs/notifications.md": {"100,000": "locks.runtime.telling.MOST_CALLS"},
    "docs/once.md": {"30 seconds": "locks.shapes.once.SET"},
    "docs/one_machine.md": {"10 seconds": "locks.program.local.IDLE"},
    "docs/original_explained.md": {
        "4 of 12": "tests/original/test_agents.py",
        "90 of 144": "tests/original/test_agents.py",
    },
    "docs/original_rules.md": {"1,000": "locks_lab.original.runs.MOST"},
    "docs/ownership.md": {
        "1 ms": "locks.ownership.turns.SLICE",
        "5 µs": "locks.ownership.turns.QUICK",
    },
    "docs/ownership_nodes.md": {"32,768": "locks.ownership.messages.MOST_GROUPS"},
    "docs/production.md": {
        "1,000": "locks.otp.links.budgets.Limits._field_defaults.watches",
        "1,000,000": "locks.otp.links.budgets.Limits._field_defaults.requests locks.otp.links.budgets.Limits._field_defaults.waits",
        "20,000": "locks.otp.links.budgets.Limits._field_defaults.transactions",
    },
    "docs/scale.md": {"three times as": "benchmarks.placed.APART"},
    "docs/simulator_crowds.md": {
        "0.1 ms": "locks_lab.crowd.prices.CLIENT",
        "0.04 ms": "locks_lab.crowd.prices.MESSAGE",
        "0.01 ms": "locks_lab.crowd.prices.EFFECT",
        "0.05 ms": "locks_lab.crowd.shape.Shape._field_defaults.delay",
        "1,000": "tests/model/test_crowds.py",
    },
    "docs/testing_others.md": {
        "300 times": "benchmarks.finding.RUNS",
        "ten seconds": "benchmarks.finding.STUCK",
    },
    "docs/testing_failures.md": {
        "100,000": "locks/testing/simulation.py",
        "30 seconds": "locks.testing.watchdog.PATIENCE",
    },
    "docs/testing_histories.md": {"20,000": "locks.testing.histories.MOST"},
    "docs/testing_strategies.md": {"20,000": "locks.testing.scenarios.MOST"},
    "docs/tooz.md": {"60,000 bytes": "locks.engines.tooz.driver.LARGEST"},
    "docs/web.md": {
        "ten times as": "locks.web.lookout.SPARE",
        "five seconds": "locks.web.lookout.SELDOM",
        "30 seconds": "locks.web.serving.SILENCE",
        "20,000": "locks.web.picture.MOST_LOCKS",
    },
}
"""By page and figure: the constants that have this value (seconds, bytes, or microseconds of versions), or a file that has the number."""

OF_OTHERS: dict[str, dict[str, str]] = {
    "docs/cautionary_model.md": {"three seconds": "Riak's default"},
    "docs/choosing.md": {
        "1 s": "PostgreSQL's default of deadlock_timeout",
        "10 s": "kazoo's default of a session's time-out",
        "15 s": "Consul's default of lock-delay",
    },
    "docs/differences.md": {
        "5 s": "the default of gen_server:call in Erlang",
        "60 s": "the default of net_ticktime in Erlang",
        "20 ms": "the original's source: locks_leader.erl",
    },
    "docs/lesson.md": {"five minutes": "a teacher's plan"},
    "docs/ownership_explained.md": {
        "0.1 ms": "the default of --nap, of the program that the page runs"
    },
    "docs/cautionary_tale.md": dict.fromkeys(
        ("4,466", "31,402", "2,859", "29,811", "101,300", "51,741"),
        "tests/examples/test_cautionary_tale.py compares the table",
    ),
    "docs/playing.md": {"17 times": "tests/model/test_play_page.py counts the keys"},
    "docs/specification.md": dict.fromkeys(
        ("4,359", "4,566", "3,029", "2,409", "2,655"),
        "tests/model/test_specification.py reads the table, and compares it",
    ),
    "docs/testing_failures.md": {"1,000": "an example of an option"},
}
"""By page and figure: whose it is, or what else compares it."""
