"""The published traces in the form that `replay` reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from scheduler.errors import ConfigurationError
from scheduler.lab.cli import register
from scheduler.lab.demand import peak_demand
from scheduler.lab.published import GENAI_REQUESTS, GPU_NODES, GPU_PODS, SMALL_FLEET, normalise
from scheduler.lab.trace import read_trace

SHARED = Path(__file__).parents[3] / "shared" / "data"
CLUSTERDATA = Path(os.environ.get("SCHEDULER_TEST_CLUSTERDATA", "absent"))

# In the form of the published files, with values of our own.
NODES = "sn,cpu_milli,memory_mib,gpu,model\nopenb-node-0177,96000,393216,8,G2\nopenb-node-0001,32000,262144,0,\n"
NODES += "openb-node-0000,32000,262144,0,\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
PODS += "p-0,12000,16384,1,1000,,LS,Running,100,500,120\n"
PODS += "p-1,3152,0,1,590,G2,BE,Pending,90,150,\n"
GENAI = "gmt_create,predict_type,predict_status,exec_time_seconds,groupId,checkpoint_model_version_id,num_lora\n"
GENAI += "2024-11-15 16:57:50,TXT_2_IMG,SUCCEED,32.0,G0,M0000,0\n2024-11-15 18:16:14,IMG,FAILED,4.5,G1,,1\n"


@pytest.fixture
def clusterdata(tmp_path: Path) -> Path:
    for name, content in {GPU_NODES: NODES, GPU_PODS: PODS, GENAI_REQUESTS: GENAI}.items():
        (tmp_path / "published" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "published" / name).write_text(content, encoding="utf-8")
    return tmp_path / "published"


def test_every_file_is_made_and_says_how_many_rows_it_has(clusterdata: Path, tmp_path: Path) -> None:
    app = typer.Typer(rich_markup_mode=None)
    register(app)
    result = CliRunner().invoke(app, ["traces", str(clusterdata), str(tmp_path / "new" / "traces")])
    assert result.exit_code == 0, result.output
    made = {file.name: file.read_text() for file in (tmp_path / "new" / "traces").iterdir()}
    assert made == {
        "nodes.csv": "node_id,cpu_count,memory_mb\nopenb-node-0177,96,393216\nopenb-node-0001,32,262144\n"
        "openb-node-0000,32,262144\n",
        "nodes_small.csv": "node_id,cpu_count,memory_mb\nopenb-node-0000,32,262144\nopenb-node-0177,96,393216\n",
        "requests.csv": "arrival_s,duration_s,cpu,memory_mb,image_or_template\n"
        "90,60,4,128,shape-c3152-m0-g1x590-BE\n100,380,12,16384,shape-c12000-m16384-g1x1000-LS\n",
        "requests_keyed.csv": "arrival_s,duration_s,cpu,memory_mb,image_or_template\n"
        "0,32,2,1024,M0000\n4704,4.5,2,1024,none\n",
    }
    assert f"{tmp_path / 'new' / 'traces' / 'requests.csv'}: 2 rows" in result.stdout


@pytest.mark.parametrize("content", [None, "gmt_create\n2024\n", GENAI.replace("32.0", "long")])
def test_a_published_file_that_is_not_there_or_another_is_named_and_nothing_is_made(
    clusterdata: Path, tmp_path: Path, content: str | None
) -> None:
    file = clusterdata / GENAI_REQUESTS
    file.unlink() if content is None else file.write_text(content)
    with pytest.raises(ConfigurationError, match=r"lora_request_trace\.csv"):
        normalise(clusterdata, tmp_path / "made")
    assert not (tmp_path / "made").exists()


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published traces are not beside this repository")
def test_the_small_fleet_is_the_one_of_the_tables_and_the_pods_take_four_fifths_of_it() -> None:
    trace = read_trace(SHARED / "nodes_small.csv", SHARED / "requests.csv")
    assert {node.node_id for node in trace.nodes} == SMALL_FLEET
    demand = peak_demand(trace)
    assert demand.cpu_capacity is not None
    assert round(demand.cpu_count / demand.cpu_capacity, 1) == 0.8


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published traces are not beside this repository")
@pytest.mark.skipif(not CLUSTERDATA.is_dir(), reason="SCHEDULER_TEST_CLUSTERDATA names no checkout of clusterdata")
def test_from_the_published_files_come_the_very_traces_of_the_tables(tmp_path: Path) -> None:
    for file, _ in normalise(CLUSTERDATA, tmp_path):
        assert file.read_bytes() == (SHARED / file.name).read_bytes(), file.name
