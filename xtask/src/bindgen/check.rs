//! `cargo xtask bindgen --check`: what is committed is what the headers say, in all versions.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Result, bail, ensure};
use xshell::Shell;
use xtask::report::Outcome;

use super::abi::{Abi, Layout};
use super::headers::{HEADERS, Header, NEWEST, include_folder, unavailable};
use super::{Bound, Purpose, bind, bindings_file, bound_functions, error_names_file, generate};

/// C names that mean another exported function in one header than in another, or than the one that
/// is bound; and how that is handled.
const DECLARED_MEANINGS: &[(&str, &str)] = &[
    (
        "cuMemAdvise",
        "both forms are bound; mem_advise takes the one that the driver has",
    ),
    (
        "cuMemPrefetchAsync",
        "both forms are bound; mem_prefetch_async takes the one that the driver has",
    ),
    (
        "cuCtxCreate",
        "_v2 and _v4 are bound; ctx_create takes the one that the driver has",
    ),
    (
        "cuDeviceGetUuid",
        "_v2 is bound, which 11.4 and later have; same types",
    ),
    (
        "cuEventElapsedTime",
        "the first form is bound, which all versions have; same types",
    ),
    (
        "cuGetProcAddress",
        "_v2 is bound, and nothing needs it where it is missing",
    ),
];

/// Constants whose value differs between headers.
const DECLARED_CONSTANTS: &[(&str, &str)] = &[
    (
        "CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS",
        "until 11.8 the attribute of an interface that is gone; nothing here uses it",
    ),
    (
        "CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR",
        "until 11.8 the attribute of an interface that is gone; nothing here uses it",
    ),
];

/// The CI stage.
pub(crate) fn check(shell: &Shell) -> Result<Outcome> {
    if let Some(why) = unavailable(shell) {
        return Ok(Outcome::Skipped(why));
    }
    let generated = generate(shell, NEWEST)?;
    for (path, wanted) in [
        (bindings_file()?, &generated.bindings),
        (error_names_file()?, &generated.error_names),
    ] {
        ensure!(
            fs::read_to_string(&path)? == *wanted,
            "{} is not what the header gives; run `cargo xtask bindgen`",
            path.display()
        );
    }
    let mut versions = Vec::new();
    for header in HEADERS {
        let abi = Abi::parse(&bind(shell, header, Purpose::Comparison)?)?;
        let text = fs::read_to_string(include_folder(shell, header)?.join("cuda.h"))?;
        versions.push(Version {
            header,
            abi,
            meanings: meanings(&text),
        });
    }
    let bound = bound_functions()?;
    let mut problems = Vec::new();
    functions(&bound, &versions, &mut problems);
    c_names(&bound, &versions, &mut problems);
    let committed = Abi::parse(&generated.bindings)?;
    layouts(&committed, &versions, &mut problems);
    location(&versions, &mut problems);
    constants(&committed, &versions, &mut problems);
    if problems.is_empty() {
        return Ok(Outcome::Passed);
    }
    bail!("{}", problems.join("\n"))
}

/// One header, read.
struct Version {
    header: &'static Header,
    abi: Abi,
    /// The exported name that a C name means, where it isn't the same.
    meanings: BTreeMap<String, String>,
}

/// Each function: which versions have it, since when, and with the same types in all.
fn functions(bound: &[Bound], versions: &[Version], problems: &mut Vec<String>) {
    print!("{:40} {:>6}", "function", "since");
    for version in versions {
        print!(" {:>5}", version.header.cuda);
    }
    println!("  same ABI  typedef");
    for Bound { name, since } in bound {
        let found: Vec<Option<String>> = versions.iter().map(|one| one.abi.of(name)).collect();
        let same = all_same(found.iter().flatten());
        print!("{name:40} {:>6}", dotted(*since));
        for (one, version) in found.iter().zip(versions) {
            print!(" {:>5}", if one.is_some() { "yes" } else { "-" });
            if one.is_some() != (*since <= version.header.version) {
                problems.push(format!(
                    "{name} is said to be of CUDA {}, but the header of {} {}",
                    dotted(*since),
                    version.header.cuda,
                    if one.is_some() { "has it" } else { "lacks it" }
                ));
            }
        }
        print!("  {:8}", if same { "yes" } else { "NO" });
        if !same {
            problems.push(format!("the ABI of {name} differs: {found:?}"));
        }
        println!("  {}", typedef(name, *since, versions, problems));
    }
}

/// `cudaTypedefs.h` names the version that `cuGetProcAddress` is to be asked for each form.
fn typedef(name: &str, since: u32, versions: &[Version], problems: &mut Vec<String>) -> String {
    let c_name = Bound {
        name: name.to_owned(),
        since,
    }
    .c_name()
    .to_owned();
    let pointer = format!("PFN_{c_name}_v{since}");
    let mut seen = Vec::new();
    for version in versions {
        let Some(pointed) = version.abi.of(&pointer) else {
            continue;
        };
        seen.push(version.header.cuda);
        if version
            .abi
            .of(name)
            .is_some_and(|declared| declared != pointed)
        {
            problems.push(format!(
                "{pointer} of CUDA {} has other types than {name}: {pointed}",
                version.header.cuda
            ));
        }
    }
    if seen.is_empty() {
        problems.push(format!("no header has {pointer}: since when is {name}?"));
        return "NONE".to_owned();
    }
    pointer
}

/// Which exported function a C name means, where that isn't the bound one in every header.
fn c_names(bound: &[Bound], versions: &[Version], problems: &mut Vec<String>) {
    println!("\nC names that don't mean the same everywhere");
    for one in bound {
        let c_name = one.c_name();
        let meaning = |version: &Version| {
            let meaning = version.meanings.get(c_name);
            meaning.map_or(c_name, String::as_str).to_owned()
        };
        let meanings: Vec<String> = versions.iter().map(meaning).collect();
        if meanings.iter().all(|meaning| *meaning == one.name) {
            continue;
        }
        let declared = DECLARED_MEANINGS.iter().find(|(name, _)| *name == c_name);
        let why = declared.map_or("UNDECLARED", |(_, why)| *why);
        let list: Vec<String> = versions
            .iter()
            .zip(&meanings)
            .map(|(version, meaning)| format!("{} {meaning}", version.header.cuda))
            .collect();
        println!("{:24} {}: {why}", one.name, list.join(", "));
        if declared.is_none() {
            problems.push(format!(
                "{c_name} means {}, and {} is bound",
                list.join(", "),
                one.name
            ));
        }
        // An export that no header of these means by the C name is older than all of them.
        if !meanings.contains(&one.name) {
            problems.push(format!("{} is a legacy export", one.name));
        }
    }
}

/// Each struct: size, alignment, and the offset of every field that two headers name.
fn layouts(committed: &Abi, versions: &[Version], problems: &mut Vec<String>) {
    println!();
    let mut compared = 0;
    for (name, newest) in &committed.layouts {
        for version in versions {
            let Some(layout) = version.abi.layouts.get(name) else {
                continue;
            };
            compared += 1;
            let cuda = version.header.cuda;
            if let Some(what) = difference(layout, newest) {
                problems.push(format!("{name} differs in {cuda}: {what}"));
            } else if layout.offsets.keys().ne(newest.offsets.keys()) {
                println!("{name}: {cuda} names other fields, within the same size");
            }
        }
    }
    println!("{compared} struct layouts compared");
    if compared < 15 {
        problems.push("hardly any struct was compared".to_owned());
    }
}

/// The struct that `cumem-sys/src/location.rs` writes by hand: 8 bytes, aligned to 4, the number after
/// the type. Since 13.x the number is in a union.
fn location(versions: &[Version], problems: &mut Vec<String>) {
    for version in versions {
        let offset = |of: &str, field: &str| {
            let layout = version.abi.layouts.get(of)?;
            layout.offsets.get(field).map(String::as_str)
        };
        let whole = version.abi.layouts.get("CUmemLocation_st");
        let union = version.abi.layouts.get("CUmemLocation_st__bindgen_ty_1");
        let is_number_second = match union {
            None => offset("CUmemLocation_st", "id") == Some("4"),
            Some(union) => {
                union.size == "4" && offset("CUmemLocation_st__bindgen_ty_1", "id") == Some("0")
            }
        };
        let is_as_written = whole
            .is_some_and(|layout| layout.size == "8" && layout.alignment == "4")
            && offset("CUmemLocation_st", "type_") == Some("0")
            && is_number_second;
        if !is_as_written {
            problems.push(format!(
                "CUmemLocation_st of {} is not as cumem-sys writes it: {whole:?} {union:?}",
                version.header.cuda
            ));
        }
    }
}

fn difference(one: &Layout, other: &Layout) -> Option<String> {
    if (&one.size, &one.alignment) != (&other.size, &other.alignment) {
        return Some("size or alignment".to_owned());
    }
    one.offsets
        .iter()
        // What is reserved shrinks as fields are made of it.
        .filter(|(field, _)| *field != "reserved")
        .find(|(field, offset)| {
            other
                .offsets
                .get(*field)
                .is_some_and(|other| other != *offset)
        })
        .map(|(field, _)| format!("the offset of {field}"))
}

/// Each constant has one value, in all headers that have it.
fn constants(committed: &Abi, versions: &[Version], problems: &mut Vec<String>) {
    let mut compared = 0;
    for (name, value) in &committed.constants {
        // These say where a list ends, or which header it is.
        if name.ends_with("_MAX") || name.ends_with("_MASK") || name == "CUDA_VERSION" {
            continue;
        }
        for version in versions {
            let cuda = version.header.cuda;
            match version.abi.constants.get(name) {
                Some(other) if other != value => {
                    let declared = DECLARED_CONSTANTS.iter().find(|(of, _)| of == name);
                    match declared {
                        Some((_, why)) => println!("{name} is {other} in {cuda}: {why}"),
                        None => problems.push(format!("{name} is {value}, but {other} in {cuda}")),
                    }
                }
                Some(_) => compared += 1,
                None => {}
            }
        }
    }
    println!("{compared} constants compared");
    if compared < 300 {
        problems.push("hardly any constant was compared".to_owned());
    }
}

/// The macros by which a header makes C names mean exported ones.
fn meanings(header: &str) -> BTreeMap<String, String> {
    let mut meanings = BTreeMap::new();
    for line in header.lines() {
        // The unindented ones hold for every program; the indented ones are of the mode with a
        // default stream for each thread.
        let Some((name, target)) = line
            .strip_prefix("#define cu")
            .and_then(|rest| rest.split_once(char::is_whitespace))
        else {
            continue;
        };
        let target = target.trim();
        let target = ["__CUDA_API_PTSZ(", "__CUDA_API_PTDS("]
            .iter()
            .find_map(|wrapper| target.strip_prefix(wrapper)?.strip_suffix(')'))
            .unwrap_or(target);
        if target.starts_with("cu") {
            meanings.insert(format!("cu{name}"), target.to_owned());
        }
    }
    meanings
}

fn all_same<'a>(mut of: impl Iterator<Item = &'a String>) -> bool {
    of.next().is_none_or(|first| of.all(|other| other == first))
}

fn dotted(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINDINGS: &str = r#"
        pub type CUdeviceptr_v2 = u64;
        unsafe extern "C" { pub fn cuMemFree_v2(pointer: CUdeviceptr_v2) -> CUresult; }
        pub type PFN_cuMemFree_v3020 = Option<unsafe extern "C" fn(p: CUdeviceptr_v2) -> CUresult>;
    "#;

    fn version(header: &'static Header, bindings: &str, macros: &str) -> Version {
        Version {
            header,
            abi: Abi::parse(bindings).expect("Rust"),
            meanings: meanings(macros),
        }
    }

    fn bound(name: &str, since: u32) -> Vec<Bound> {
        vec![Bound {
            name: name.to_owned(),
            since,
        }]
    }

    fn problems_of(check: impl FnOnce(&mut Vec<String>)) -> String {
        let mut problems = Vec::new();
        check(&mut problems);
        problems.join("\n")
    }

    #[test]
    fn a_function_that_is_the_same_everywhere_is_no_problem() {
        let versions = HEADERS.map(|header| version(header, BINDINGS, ""));
        let problems = problems_of(|problems| {
            functions(&bound("cuMemFree_v2", 3020), &versions, problems);
        });
        assert_eq!(problems, "");
    }

    #[test]
    fn a_changed_parameter_is_noticed_through_its_alias() {
        let narrow = BINDINGS.replace("= u64", "= u32");
        let versions = [
            version(HEADERS[0], &narrow, ""),
            version(HEADERS[1], BINDINGS, ""),
        ];
        let problems = problems_of(|problems| {
            functions(&bound("cuMemFree_v2", 3020), &versions, problems);
        });
        assert!(
            problems.contains("the ABI of cuMemFree_v2 differs"),
            "{problems}"
        );
    }

    #[test]
    fn a_wrong_since_is_noticed() {
        let versions = [version(HEADERS[0], BINDINGS, "")];
        let problems = problems_of(|problems| {
            functions(&bound("cuMemFree_v2", 12000), &versions, problems);
        });
        assert!(problems.contains("the header of 11.8 has it"), "{problems}");
        let problems = problems_of(|problems| {
            functions(&bound("cuMemFree_v2", 4000), &versions, problems);
        });
        assert!(
            problems.contains("no header has PFN_cuMemFree_v4000"),
            "{problems}"
        );
    }

    #[test]
    fn a_legacy_export_is_noticed() {
        let macros = "#define cuMemFree    cuMemFree_v2\n";
        let versions = [version(HEADERS[0], BINDINGS, macros)];
        let problems = problems_of(|problems| {
            c_names(&bound("cuMemFree", 2000), &versions, problems);
        });
        assert!(
            problems.contains("cuMemFree is a legacy export"),
            "{problems}"
        );
        let problems = problems_of(|problems| {
            c_names(&bound("cuMemFree_v2", 3020), &versions, problems);
        });
        assert_eq!(problems, "");
    }

    #[test]
    fn macros_are_read_without_the_default_stream_around_them() {
        let read = meanings(
            "#define cuMemAdvise  cuMemAdvise_v2\n\
             #define cuMemcpyHtoD __CUDA_API_PTDS(cuMemcpyHtoD_v2)\n    \
             #define cuMemcpy     __CUDA_API_PTDS(cuMemcpy)\n",
        );
        assert_eq!(read["cuMemAdvise"], "cuMemAdvise_v2");
        assert_eq!(read["cuMemcpyHtoD"], "cuMemcpyHtoD_v2");
        assert_eq!(read.len(), 2);
    }

    #[test]
    fn a_moved_field_is_noticed_and_a_new_one_in_reserved_space_is_not() {
        let layout = |offsets: &[(&str, &str)]| Layout {
            size: "88".to_owned(),
            alignment: "8".to_owned(),
            offsets: offsets
                .iter()
                .map(|(field, offset)| ((*field).to_owned(), (*offset).to_owned()))
                .collect(),
        };
        let old = layout(&[("a", "0"), ("reserved", "8")]);
        let new = layout(&[("a", "0"), ("b", "8"), ("reserved", "16")]);
        assert_eq!(difference(&old, &new), None);
        let moved = layout(&[("a", "4"), ("reserved", "8")]);
        assert_eq!(difference(&old, &moved).as_deref(), Some("the offset of a"));
    }
}
