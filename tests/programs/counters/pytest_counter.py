import pytest
from counting import JOBS, count_one

import locks


@pytest.mark.parametrize("number", JOBS)
def test_count(number):
    with locks.Lock(("counter",)):
        count_one()
