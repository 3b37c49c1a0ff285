"""Fails if the recipe does not render on some platform, or has another version than the crate."""

import re
from pathlib import Path

from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig

HERE = Path(__file__).parent
# As conda-forge sets them.
COMPILERS = VariantConfig(
    {"c_compiler": ["gcc"], "rust_compiler": ["rust"], "c_stdlib": ["sysroot"]}
)
PLATFORMS = ("linux-64", "linux-aarch64", "osx-arm64", "win-64")

manifest = (HERE.parents[1] / "Cargo.toml").read_text("utf-8")
[version] = re.findall(r'^version = "(.+)"$', manifest, re.MULTILINE)
recipe = Stage0Recipe.from_file(str(HERE / "recipe.yaml"))
for name in PLATFORMS:
    platform = PlatformConfig(target_platform=name, build_platform="linux-64")
    [variant] = recipe.render(COMPILERS, RenderConfig(platform=platform))
    package = variant.recipe.to_dict()["package"]
    expected = {"name": "cyclescope", "version": version}
    assert package == expected, f"recipe.yaml is for {package}, the crate is {expected}"
    print(f"{name}: {package['name']} {package['version']}")
