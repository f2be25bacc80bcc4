# SPDX-License-Identifier: Apache-2.0
# Tests that go through every place where something can go wrong try one in twenty each time, other ones in each run:
# the suite `slow` tries them all, with CKPT_TEST_EVERY=1.
import os
import random

EVERY = int(os.environ.get("CKPT_TEST_EVERY", "20"))


def sampled(places):
    return list(places)[random.randrange(EVERY)::EVERY]
