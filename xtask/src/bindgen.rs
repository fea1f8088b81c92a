//! `cargo xtask bindgen`: the driver's C interface, from NVIDIA's headers.
//!
//! The headers come from PyPI's CUDA runtime wheels, and libclang from PyPI too, so that nothing
//! has to be installed. What is bound is what the tables in `crates/cumem-sys/src/table.rs` name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use xshell::{Shell, cmd};
use xtask::report::Outcome;

use crate::workspace;

/// Options of `cargo xtask bindgen`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing: prove that the committed bindings are what the newest header gives, and
    /// that each function has the same ABI in CUDA 11.8, 12.9 and 13.
    #[arg(long)]
    check: bool,
}

/// A header to read: a name for people, and the PyPI package that carries it.
struct Header {
    cuda: &'static str,
    package: &'static str,
}

/// The oldest supported, the last 12, and the one that the bindings are made from.
const HEADERS: &[Header] = &[
    Header {
        cuda: "11.8",
        package: "nvidia-cuda-runtime-cu11==11.8.89",
    },
    Header {
        cuda: "12.9",
        package: "nvidia-cuda-runtime-cu12==12.9.79",
    },
    NEWEST,
];

const NEWEST: Header = Header {
    cuda: "13.5",
    package: "nvidia-cuda-runtime==13.5.37",
};

const LIBCLANG: &str = "libclang==18.1.1";

/// Functions whose declared types differ between the headers, and why that is no change of ABI or
/// is handled.
const DECLARED_DIFFERENCES: &[(&str, &str)] = &[];

pub(crate) fn run(args: &Args) -> Result<()> {
    let shell = workspace::shell()?;
    if args.check {
        return match check(&shell)? {
            Outcome::Passed => Ok(()),
            Outcome::Skipped(why) => bail!("{why}"),
        };
    }
    let generated = generate(&shell, &NEWEST)?;
    fs::write(bindings_file()?, generated.bindings)?;
    fs::write(error_names_file()?, generated.error_names)?;
    Ok(())
}

fn bindings_file() -> Result<PathBuf> {
    Ok(workspace::root()?.join("crates/cumem-sys/src/bindings.rs"))
}

fn error_names_file() -> Result<PathBuf> {
    Ok(workspace::root()?.join("crates/cumem-sys/src/error_names.rs"))
}

struct Generated {
    bindings: String,
    error_names: String,
}

fn generate(shell: &Shell, header: &Header) -> Result<Generated> {
    let bindings = bind(shell, header)?;
    let error_names = error_names(header, &bindings)?;
    Ok(Generated {
        bindings: format(shell, &bindings)?,
        error_names: format(shell, &error_names)?,
    })
}

/// Runs bindgen over one header.
fn bind(shell: &Shell, header: &Header) -> Result<String> {
    let include = include_folder(shell, header)?;
    prepare_libclang(shell)?;
    let compiler_include = cmd!(shell, "gcc -print-file-name=include").quiet().read()?;
    // The first macro makes the header declare every version of every function under its exact
    // exported name, the old forms included; the second leaves its enums as users see them.
    let source = "#define __CUDA_API_VERSION_INTERNAL\n\
                  #define __CUDA_API_VERSION_INTERNAL_ODR\n\
                  #include <cuda.h>\n";
    let functions = bound_functions()?.join("|");
    let bindings = bindgen::Builder::default()
        .header_contents("cumem.h", source)
        .clang_arg(format!("-I{}", include.display()))
        .clang_arg(format!("-I{compiler_include}"))
        .use_core()
        .generate_comments(false)
        .disable_header_comment()
        .layout_tests(true)
        .default_enum_style(bindgen::EnumVariation::NewType {
            is_bitfield: false,
            is_global: false,
        })
        .derive_default(false)
        .derive_eq(true)
        .derive_hash(true)
        .allowlist_function(functions)
        .allowlist_type("CUmem(Advise|_advise|Attach_flags|AllocationHandleType|Location).*")
        .allowlist_type("CUpointer_attribute|CUmem_range_attribute|CUmemPool_attribute")
        .allowlist_type("CUctx_flags|CUstream_flags|CUevent_flags|CUdevice_attribute")
        .allowlist_type("CUmemorytype|CUmemAllocationGranularity_flags|CUmemAccess_flags")
        .allowlist_var("CU_MEMHOST(ALLOC|REGISTER)_.*|CU_DEVICE_(CPU|INVALID)|CUDA_VERSION")
        .generate()?
        .to_string();
    Ok(format!(
        "// From the cuda.h of CUDA {}, by `cargo xtask bindgen`; do not edit.\n\n{bindings}",
        header.cuda
    ))
}

/// The name of every error code and what it says in words, as functions from the code.
fn error_names(header: &Header, bindings: &str) -> Result<String> {
    let names: BTreeSet<&str> = bindings
        .split("pub const ")
        .filter_map(|rest| rest.split_once(':'))
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("CUDA_ERROR_") || *name == "CUDA_SUCCESS")
        .collect();
    ensure!(names.len() > 50, "the header has hardly any error code");
    let mut text = format!(
        "// From the cuda.h of CUDA {}, by `cargo xtask bindgen`; do not edit.\n\n\
         use crate::bindings::CUresult;\n",
        header.cuda
    );
    let as_is: fn(&str) -> String = str::to_owned;
    let functions = [
        (
            "error_name",
            "The C name of an error code that was known when this was generated.",
            as_is,
        ),
        (
            "error_description",
            "What the name of such an error code says.",
            in_words,
        ),
    ];
    for (function, about, of_name) in functions {
        write!(
            text,
            "\n/// {about}\n\
             pub(crate) fn {function}(code: CUresult) -> Option<&'static str> {{\n\
             Some(match code {{\n"
        )?;
        for name in &names {
            writeln!(text, "CUresult::{name} => {:?},", of_name(name))?;
        }
        text.push_str("_ => return None,\n})\n}\n");
    }
    Ok(text)
}

/// `CUDA_ERROR_OUT_OF_MEMORY`: out of memory.
fn in_words(name: &str) -> String {
    let words = name
        .trim_start_matches("CUDA_ERROR_")
        .trim_start_matches("CUDA_");
    words.to_lowercase().replace('_', " ")
}

/// The exported names that `table.rs` binds.
fn bound_functions() -> Result<Vec<String>> {
    let path = workspace::root()?.join("crates/cumem-sys/src/table.rs");
    let text = fs::read_to_string(&path)?;
    let names: Vec<String> = text
        .lines()
        .filter_map(|line| {
            let line = line.trim();
            let rest = line
                .strip_prefix("required ")
                .or_else(|| line.strip_prefix("optional "))?;
            let (name, _) = rest.split_once('(')?;
            name.starts_with("cu").then(|| name.to_owned())
        })
        .collect();
    ensure!(!names.is_empty(), "{} binds nothing", path.display());
    Ok(names)
}

/// Where the header's folder is, downloaded if it wasn't before.
fn include_folder(shell: &Shell, header: &Header) -> Result<PathBuf> {
    let folder = unpack_wheel(shell, header.package)?;
    find(&folder, "cuda.h")?
        .parent()
        .map(Path::to_path_buf)
        .context("cuda.h is in no folder")
}

/// Has bindgen load libclang from its PyPI package, unless the caller chose one.
fn prepare_libclang(shell: &Shell) -> Result<()> {
    if std::env::var_os("LIBCLANG_PATH").is_some() {
        return Ok(());
    }
    let library = find(&unpack_wheel(shell, LIBCLANG)?, "libclang.so")?;
    let folder = library.parent().context("libclang is in no folder")?;
    // SAFETY: this program has one thread at this point.
    unsafe { std::env::set_var("LIBCLANG_PATH", folder) };
    Ok(())
}

/// Downloads a wheel from PyPI and unpacks it, once.
fn unpack_wheel(shell: &Shell, package: &str) -> Result<PathBuf> {
    let folder = workspace::root()?
        .join("target/bindgen")
        .join(package.replace("==", "-"));
    if folder.join("done").exists() {
        return Ok(folder);
    }
    fs::create_dir_all(&folder)?;
    println!("fetching {package} from PyPI");
    cmd!(
        shell,
        "python3 -m pip download --quiet --no-deps --only-binary=:all: --dest {folder} {package}"
    )
    .run()?;
    let wheel = fs::read_dir(&folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .with_context(|| format!("pip downloaded no wheel of {package}"))?;
    cmd!(shell, "python3 -m zipfile -e {wheel} {folder}").run()?;
    fs::write(folder.join("done"), "")?;
    Ok(folder)
}

/// The first file of this name below a folder.
fn find(folder: &Path, name: &str) -> Result<PathBuf> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|file| file == name) {
                return Ok(path);
            }
        }
    }
    bail!("no {name} below {}", folder.display())
}

fn format(shell: &Shell, code: &str) -> Result<String> {
    let formatted = cmd!(shell, "rustfmt --edition 2024")
        .stdin(code)
        .quiet()
        .read()?;
    Ok(formatted + "\n")
}

/// The CI stage.
pub(crate) fn check(shell: &Shell) -> Result<Outcome> {
    let generated = generate(shell, &NEWEST)?;
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
    let mut signatures = Vec::new();
    for header in HEADERS {
        signatures.push(Signatures::parse(&bind(shell, header)?)?);
    }
    compare(&signatures)?;
    Ok(Outcome::Passed)
}

/// Prints which header has which function, and fails where two disagree.
fn compare(all: &[Signatures]) -> Result<()> {
    let mut different = Vec::new();
    print!("{:44}", "function");
    for header in HEADERS {
        print!(" {:>5}", header.cuda);
    }
    println!("  same ABI");
    for name in bound_functions()? {
        let found: Vec<Option<String>> = all.iter().map(|one| one.abi_of(&name)).collect();
        let mut known = found.iter().flatten();
        let first = known
            .next()
            .with_context(|| format!("no header declares {name}"))?;
        let same = known.all(|other| other == first);
        let excuse = DECLARED_DIFFERENCES
            .iter()
            .find(|(function, _)| *function == name);
        print!("{name:44}");
        for one in &found {
            print!(" {:>5}", if one.is_some() { "yes" } else { "-" });
        }
        match (same, excuse) {
            (true, _) => println!("  yes"),
            (false, Some((_, why))) => println!("  no: {why}"),
            (false, None) => {
                println!("  NO");
                for (header, one) in HEADERS.iter().zip(&found) {
                    println!("    {}: {}", header.cuda, one.as_deref().unwrap_or("-"));
                }
                different.push(name);
            }
        }
    }
    ensure!(
        different.is_empty(),
        "the ABI differs between headers: {}",
        different.join(", ")
    );
    Ok(())
}

/// What one header says, reduced to what the ABI depends on.
struct Signatures {
    functions: BTreeMap<String, String>,
    aliases: BTreeMap<String, String>,
    sizes: BTreeMap<String, String>,
}

impl Signatures {
    fn parse(bindings: &str) -> Result<Self> {
        let file = syn::parse_file(bindings)?;
        let mut functions = BTreeMap::new();
        let mut aliases = BTreeMap::new();
        for item in &file.items {
            match item {
                syn::Item::ForeignMod(block) => {
                    for item in &block.items {
                        if let syn::ForeignItem::Fn(function) = item {
                            let types = function.sig.inputs.iter().map(|input| match input {
                                syn::FnArg::Typed(argument) => tokens(&argument.ty),
                                syn::FnArg::Receiver(_) => String::new(),
                            });
                            functions.insert(
                                function.sig.ident.to_string(),
                                types.collect::<Vec<_>>().join(", "),
                            );
                        }
                    }
                }
                syn::Item::Type(alias) => {
                    aliases.insert(alias.ident.to_string(), tokens(&alias.ty));
                }
                syn::Item::Use(import) => {
                    if let Some((name, target)) = renamed(&import.tree) {
                        aliases.insert(name, target);
                    }
                }
                _ => {}
            }
        }
        Ok(Self {
            functions,
            aliases,
            sizes: sizes(bindings),
        })
    }

    /// The parameter types with every alias followed, and the size of each struct behind one.
    fn abi_of(&self, function: &str) -> Option<String> {
        let types = self.functions.get(function)?;
        let mut words: Vec<String> = types.split(' ').map(str::to_owned).collect();
        for word in &mut words {
            let bare = word.trim_end_matches(',').to_owned();
            let comma = if word.ends_with(',') { "," } else { "" };
            let mut name = bare;
            while let Some(target) = self.aliases.get(&name) {
                name.clone_from(target);
            }
            let size = self
                .sizes
                .get(&name)
                .map(|size| format!("[{size}]"))
                .unwrap_or_default();
            // Structs were renamed between versions without a change of layout.
            let name = name
                .trim_end_matches("_v1")
                .trim_end_matches("_st")
                .to_owned();
            *word = format!("{name}{size}{comma}");
        }
        Some(words.join(" "))
    }
}

fn tokens(item: &impl quote::ToTokens) -> String {
    item.to_token_stream().to_string()
}

/// `pub use self::Target as Name`, as bindgen writes for C enums.
fn renamed(tree: &syn::UseTree) -> Option<(String, String)> {
    match tree {
        syn::UseTree::Path(path) => renamed(&path.tree),
        syn::UseTree::Rename(rename) => Some((rename.rename.to_string(), rename.ident.to_string())),
        _ => None,
    }
}

/// The sizes that bindgen's layout assertions state.
fn sizes(bindings: &str) -> BTreeMap<String, String> {
    bindings
        .split("[\"Size of ")
        .skip(1)
        .filter_map(|rest| {
            let (name, rest) = rest.split_once("\"]")?;
            let (_, rest) = rest.split_once(">() - ")?;
            let (size, _) = rest.split_once(']')?;
            Some((name.to_owned(), size.to_owned()))
        })
        .collect()
}
