"""The security page grants what the code needs, no more and no less."""

from __future__ import annotations

import re

from tests.docs.commands import ROOT
from tests.redis.test_access import MINIMAL_ACL


def test_the_acl_list_is_the_one_that_is_tested() -> None:
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    listed = re.search(r"<!-- acl -->\n```text\n(.*?)```", page, re.DOTALL)
    assert listed is not None
    assert sorted(listed[1].split()) == sorted(MINIMAL_ACL)
