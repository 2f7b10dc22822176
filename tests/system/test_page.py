"""The page of a coordinator and two nodes with a real model, in Chromium."""

from __future__ import annotations

import os
import sys
import time

from tests.lab.asking import MODEL
from tests.lab.chromium import needs_chromium
from tests.lab.two_nodes import TwoNodes

PICTURES = "LAYERLINE_PICTURES"  # a folder, for those who want to look at the page
URL = "http://127.0.0.1:7380"
READY_DEADLINE_S = 40.0
PAGE_DEADLINE_S = 90.0


@needs_chromium
def test_the_page_shows_a_cluster_chats_and_sees_a_node_die(cluster: TwoNodes) -> None:
    coordinator = cluster.desk.start(["layerline", "coordinator", "--model", MODEL])
    coordinator.wait_for("Ready:", deadline_s=READY_DEADLINE_S)
    words = [sys.executable, "-m", "tests.page.cluster_program", URL, cluster.b.name]
    page = cluster.desk.start(words, LAYERLINE_PICTURES=os.environ.get(PICTURES, ""))
    page.wait_for("Kill it now", deadline_s=PAGE_DEADLINE_S)
    killed_s = time.time()
    cluster.b.kill_everything()
    lost = page.wait_for(r"Lost at (\d+\.\d+)", deadline_s=PAGE_DEADLINE_S)
    print(f"The page showed the loss after {float(lost[1]) - killed_s:.2f} s.")
    finished = page.wait(deadline_s=30)
    assert finished.exit_code == 0, finished.stderr
    coordinator.terminate()
    coordinator.wait(deadline_s=20)
