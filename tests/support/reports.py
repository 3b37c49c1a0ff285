"""Reports of fixtures' leaks, and larger ones that are made of them."""

from __future__ import annotations

import json

import common
import cyclescope


def leaked(*names: str) -> cyclescope.CycleReport:
    """The report of some fixtures' leaks; the later, the larger."""
    with common.collector_paused():
        for mib, name in enumerate(names, 2):
            common.load(name).leak("cpu", mib)
        return cyclescope.find_tensor_cycles(devices="any", frozen=False)


def surrounded(
    report: cyclescope.CycleReport, types: list[str], edges: list[tuple[int, int, str]]
) -> cyclescope.CycleReport:
    """The leak of a report with objects of these types around it, which are not drawn at first.

    The ends of the edges count the new objects; a negative one is a step of the cycle, -1 the
    first.
    """
    data = json.loads(report.to_json())
    (leak,) = data["leaks"]
    graph = leak["graph"]
    first = len(graph["nodes"])
    steps = [step["node"] for step in leak["cycle"]]
    for kind in types:
        node = {**graph["nodes"][steps[0]], "label": kind, "type_name": kind}
        graph["nodes"].append({**node, "in_cycle": False})
    ends = [*range(first, len(graph["nodes"])), *reversed(steps)]
    for start, end, name in edges:
        edge = {"from": ends[start], "to": ends[end], "name": name, "role": "other"}
        graph["edges"].append(edge)
    return cyclescope.CycleReport.from_json(json.dumps(data))


def crowded(report: cyclescope.CycleReport, objects: int) -> cyclescope.CycleReport:
    """The first leak of a report among so many objects, which hang off it as a tree."""
    data = json.loads(report.to_json())
    graph = data["leaks"][0]["graph"]
    first = len(graph["nodes"])
    for index in range(first, objects):
        node = {**graph["nodes"][0], "label": f"Node {index}", "type_name": f"tree.Node{index % 7}"}
        graph["nodes"].append({**node, "in_cycle": False, "kind": "object"})
        parent = max(0, first + (index - first - 1) // 3)
        edge = {"from": parent, "to": index, "name": f".child{index % 3}", "role": "other"}
        graph["edges"].append(edge)
    return cyclescope.CycleReport.from_json(json.dumps(data))


def tangled(report: cyclescope.CycleReport, objects: int) -> cyclescope.CycleReport:
    """As ``crowded``, of 40 types, and each of the objects refers to several others."""
    data = json.loads(crowded(report, objects).to_json())
    graph = data["leaks"][0]["graph"]
    for index, node in enumerate(graph["nodes"]):
        if node["type_name"].startswith("tree."):
            node["type_name"] = f"tangle.Kind{index * index % 40}"
            for step in (7, 31, 101):
                other = (index * step + 13) % objects
                edge = {"from": index, "to": other, "name": f".to{step}", "role": "other"}
                graph["edges"].append(edge)
    return cyclescope.CycleReport.from_json(json.dumps(data))


def repeated(report: cyclescope.CycleReport, leaks: int) -> cyclescope.CycleReport:
    """The first leak of a report so many times, each time as another one."""
    data = json.loads(report.to_json())
    leak = data["leaks"][0]
    data["leaks"] = [{**leak, "signature": f"{index:016x}"} for index in range(leaks)]
    return cyclescope.CycleReport.from_json(json.dumps(data))
