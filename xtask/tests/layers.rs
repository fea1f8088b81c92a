//! The dependency direction of `docs/architecture.md`: a crate may use only what stands below it.

use std::collections::BTreeMap;
use std::process::Command;

/// Each published crate, and which crates of this workspace it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("ptr-registry", &[]),
    ("cumem-sys", &[]),
    ("cumem-backend", &["ptr-registry", "cumem-sys"]),
    ("cumem-unified", &["cumem-backend", "cumem-sys"]),
    ("cumem-device", &["cumem-backend", "cumem-sys"]),
    ("cumem-pinned", &["cumem-backend", "cumem-sys"]),
    ("cumem-virtual", &["cumem-backend", "cumem-sys"]),
    ("cumem-sim", &["cumem-sys"]),
    (
        "cumem-pool",
        &["cumem-backend", "cumem-sys", "ptr-registry"],
    ),
    (
        "cumem",
        &[
            "cumem-backend",
            "cumem-device",
            "cumem-pinned",
            "cumem-sys",
            "cumem-unified",
            "cumem-virtual",
        ],
    ),
];

#[test]
fn every_crate_depends_only_on_what_stands_below_it() {
    let packages = normal_dependencies();
    let own: Vec<&String> = packages.keys().collect();
    for (name, allowed) in ALLOWED {
        let dependencies = &packages[*name];
        for dependency in dependencies {
            assert!(
                !own.contains(&dependency) || allowed.contains(&dependency.as_str()),
                "{name} must not depend on {dependency}"
            );
        }
    }
}

#[test]
fn the_registry_stands_on_next_to_nothing() {
    for dependency in &normal_dependencies()["ptr-registry"] {
        assert!(
            ["cfg-if", "crossbeam-utils"].contains(&dependency.as_str()),
            "ptr-registry must not depend on {dependency}"
        );
    }
}

/// What each package of the workspace depends on, tests, build scripts and special
/// configurations (loom, shuttle) left out.
fn normal_dependencies() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo metadata runs");
    assert!(output.status.success());
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    metadata["packages"]
        .as_array()
        .expect("packages")
        .iter()
        .map(|package| {
            let name = text(&package["name"]).expect("a name");
            let dependencies = package["dependencies"]
                .as_array()
                .expect("dependencies")
                .iter()
                .filter(|dependency| dependency["kind"].is_null())
                .filter(|dependency| {
                    !text(&dependency["target"])
                        .is_some_and(|target| target.contains("loom") || target.contains("shuttle"))
                })
                .filter_map(|dependency| text(&dependency["name"]))
                .collect();
            (name, dependencies)
        })
        .collect()
}
