"""TF_CONFIG: which hosts there are, and what is wrong with it."""
import json
import os

import pytest

from multigpu import hosts
from multigpu.errors import UserError


def read(cluster, task=None):
  config = {"cluster": cluster}
  if task is not None:
    config["task"] = {"type": task[0], "index": task[1]}
  return hosts.read({"TF_CONFIG": json.dumps(config)})


@pytest.mark.parametrize("cluster, task, names, index", [
    ({"chief": ["a:1"], "worker": ["b:2"]}, ("chief", 0),
     ["chief", "worker 0"], 0),
    ({"chief": ["a:1"], "worker": ["b:2"]}, ("worker", 0),
     ["chief", "worker 0"], 1),
    ({"chief": ["a:1"], "worker": ["b:2"]}, ("worker", "0"),
     ["chief", "worker 0"], 1),
    ({"worker": ["a:1", "b:2"]}, ("worker", 0), ["worker 0", "worker 1"], 0),
    ({"worker": ["a:1", "b:2"]}, ("worker", 1), ["worker 0", "worker 1"], 1),
    ({"master": ["a:1"], "worker": ["b:2"], "ps": []}, ("master", 0),
     ["chief", "worker 0"], 0),
])
def test_hosts(cluster, task, names, index):
  found = read(cluster, task)
  assert (found.names, found.rank) == (names, index)
  assert found.addresses == ["a:1", "b:2"]
  assert found.is_chief == (index == 0)
  assert found.own_dir("out") == ("out" if index == 0 else
                                  os.path.join("out", "worker-1"))


@pytest.mark.parametrize("environment", [
    {}, {"TF_CONFIG": ""}, {"TF_CONFIG": "{}"},
    {"TF_CONFIG": '{"cluster": {}, "task": {"type": "worker", "index": 0}}'}])
def test_without_a_cluster(environment):
  assert hosts.read(environment) is None


@pytest.mark.parametrize("kind", ["chief", "worker"])
def test_a_cluster_of_one(kind):
  assert read({kind: ["a:1"]}, (kind, 0)) is None


TWO = {"chief": ["a:1"], "worker": ["b:2"]}


@pytest.mark.parametrize("cluster, task, message", [
    (dict(TWO, ps=["c:3"]), ("chief", 0), 'tasks of type "ps"'),
    (dict(TWO, evaluator=["c:3"]), ("chief", 0), 'tasks of type "evaluator"'),
    (TWO, ("evaluator", 0), 'this task is "evaluator"'),
    (TWO, ("ps", 0), 'this task is "ps"'),
    (dict(TWO, boss=["c:3"]), ("chief", 0), 'tasks of type "boss"'),
    (TWO, None, '"task" does not say'),
    (TWO, ("worker", 1), '"task" is "worker" 1, and the cluster has chief, '
                         'worker 0'),
    (TWO, ("chief", 1), '"task" is "chief" 1'),
    (TWO, ("worker", True), '"task" is "worker" true'),
    (dict(TWO, master=["c:3"]), ("chief", 0), "more than one chief"),
    ({"worker": ["b:2", "b:2"]}, ("worker", 0), "b:2 more than once"),
    ({"worker": ["b", "c:3"]}, ("worker", 0), 'the address "b", wanted'),
    ({"worker": ["b:0", "c:3"]}, ("worker", 0), 'the address "b:0", wanted'),
    ({"worker": [7]}, ("worker", 0), "the address 7, wanted"),
    ({"worker": "b:2"}, ("worker", 0), '"worker" is no list'),
    (["b:2"], ("worker", 0), '"cluster" is no object'),
    ({"worker": []}, ("worker", 0), 'neither "chief" nor "worker"'),
])
def test_mistakes(cluster, task, message):
  with pytest.raises(UserError) as error:
    read(cluster, task)
  assert str(error.value).startswith("TF_CONFIG")
  assert message in str(error.value)


@pytest.mark.parametrize("text, message", [
    ("{'cluster': 1}", "is not JSON"), ("[]", "is no JSON object")])
def test_not_even_json(text, message):
  with pytest.raises(UserError, match="TF_CONFIG " + message):
    hosts.read({"TF_CONFIG": text})


def test_tensorflow_sees_one_form_and_only_for_a_while(monkeypatch):
  monkeypatch.setenv("TF_CONFIG", "before")
  found = read({"worker": ["a:1", "b:2", "c:3"]}, ("worker", 2))
  with found.environment():
    assert json.loads(os.environ["TF_CONFIG"]) == {
        "cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"]},
        "task": {"type": "worker", "index": 1}}
  assert os.environ["TF_CONFIG"] == "before"
  monkeypatch.delenv("TF_CONFIG")
  with found.environment():
    pass
  assert "TF_CONFIG" not in os.environ


@pytest.mark.parametrize("address, parts", [
    ("a:1", ("a", 1)), ("10.0.0.1:22", ("10.0.0.1", 22)),
    ("[::1]:22", ("::1", 22))])
def test_addresses(address, parts):
  assert hosts.split_address(address) == parts
