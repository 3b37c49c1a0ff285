"""Reports with more in them than a fixture leaks, made of a small one."""

from __future__ import annotations

import json

import cyclescope


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


def repeated(report: cyclescope.CycleReport, leaks: int) -> cyclescope.CycleReport:
    """The first leak of a report so many times, each time as another one."""
    data = json.loads(report.to_json())
    leak = data["leaks"][0]
    data["leaks"] = [{**leak, "signature": f"{index:016x}"} for index in range(leaks)]
    return cyclescope.CycleReport.from_json(json.dumps(data))
