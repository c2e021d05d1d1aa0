"""Choice of devices; the driver's tool is played by a small script."""
import os

import pytest

from multigpu import devices
from multigpu.errors import UserError
from multigpu.hosts import Hosts


@pytest.fixture
def gpus(tmp_path, monkeypatch):
  """Makes nvidia-smi show a number of GPUs."""
  def show(count):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\n" + "".join(
        "echo 'GPU %d: NVIDIA Test (UUID: GPU-%d)'\n" % (i, i)
        for i in range(count)))
    tool.chmod(0o755)
  monkeypatch.setenv(
      "PATH", "%s%s%s" % (tmp_path, os.pathsep, os.environ["PATH"]))
  monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
  return show


@pytest.mark.parametrize("visible, wanted", [
    (None, ["0", "1", "2"]),
    ("1", ["1"]),
    ("2,0", ["2", "0"]),
    ("", []),
    ("-1", []),
    ("0,-1,1", ["0"]),  # CUDA stops at the first entry that is no GPU
    ("7", []),
    ("GPU-2,GPU-0", ["GPU-2", "GPU-0"]),
])
def test_cuda_visible_devices_is_honoured(gpus, monkeypatch, visible, wanted):
  gpus(3)
  if visible is not None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
  assert devices.visible_gpus() == wanted


def test_only_as_many_gpus_as_asked_for_stay_visible(gpus, monkeypatch):
  gpus(4)
  monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1,0")
  monkeypatch.setattr(devices.tf.config.experimental, "list_physical_devices",
                      lambda kind: ["a", "b"])
  devices._take_gpus(devices.visible_gpus(), 2)
  assert os.environ["CUDA_VISIBLE_DEVICES"] == "3,1"


@pytest.mark.parametrize("settings, message", [
    (devices.DeviceSettings(9, "gpu"),
     "--num_gpus=9, but this machine shows 2 GPUs: pass --num_gpus=2, or "
     "--device_type=cpu"),
    (devices.DeviceSettings(0, "cpu"), "--num_gpus=0, wanted 1 or more"),
    (devices.DeviceSettings(2, "auto"), "TensorFlow .* can use 0 of them"),
])
def test_errors(gpus, monkeypatch, settings, message):
  gpus(2)
  monkeypatch.setattr(devices.tf.config.experimental, "list_physical_devices",
                      lambda kind: [])
  with pytest.raises(UserError, match=message):
    devices.set_up(settings)


def test_without_gpus_one_replica_runs_on_the_cpu(gpus):
  gpus(0)
  found = devices.set_up(devices.DeviceSettings())
  assert (found.kind, found.num_replicas) == ("CPU", 1)
  assert found.describe() == "1 CPU replica"


HOSTS = Hosts(["a:1", "b:2"], ["chief", "worker 0"], 1)


@pytest.mark.parametrize("settings, hosts, message", [
    (devices.DeviceSettings(2, "cpu"), HOSTS, "each has one CPU replica"),
    (devices.DeviceSettings(1, "cpu", "reduce_to_one"), HOSTS,
     "--all_reduce=reduce_to_one works within one host only"),
    (devices.DeviceSettings(1, "cpu", "ring"), None,
     "--all_reduce=ring is for several hosts")])
def test_errors_with_hosts(gpus, settings, hosts, message):
  gpus(0)
  with pytest.raises(UserError, match=message):
    devices.set_up(settings, hosts)


def test_the_replicas_of_all_hosts(gpus, monkeypatch):
  gpus(0)
  monkeypatch.delenv("TF_CONFIG", raising=False)
  found = devices.set_up(devices.DeviceSettings(1, "cpu", "ring"), HOSTS)
  assert found.strategy.num_replicas_in_sync == 2
  assert (found.num_replicas, found.num_local_replicas) == (2, 1)
  assert found.describe() == "2 hosts x 1 CPU replica"
  assert found.describe_local() == "1 CPU replica"
  local = found.local()
  assert (local.num_replicas, local.describe()) == (1, "1 CPU replica")
  assert local.strategy.num_replicas_in_sync == 1
  assert "TF_CONFIG" not in os.environ
