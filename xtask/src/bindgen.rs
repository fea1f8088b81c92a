//! `cargo xtask bindgen`: the driver's C interface, from NVIDIA's headers.
//!
//! The headers come from PyPI's CUDA runtime wheels, and libclang from PyPI too, so that nothing
//! has to be installed. What is bound is what the table in `crates/cumem-sys/src/table.rs` names.

mod abi;
mod check;
mod headers;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use xshell::{Shell, cmd};
use xtask::report::Outcome;

pub(crate) use self::check::check;
use self::headers::{Header, NEWEST, include_folder, prepare_libclang};
use crate::workspace;

/// Options of `cargo xtask bindgen`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing: prove that the committed bindings are what the newest header gives, and
    /// that each function has the same ABI in CUDA 11.8, 12.9 and 13.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let shell = workspace::shell()?;
    if args.check {
        return match check(&shell)? {
            Outcome::Passed => Ok(()),
            Outcome::Skipped(why) => bail!("{why}"),
        };
    }
    let generated = generate(&shell, NEWEST)?;
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
    let bindings = bind(shell, header, Purpose::Committed)?;
    let error_names = error_names(header, &bindings)?;
    Ok(Generated {
        bindings: format(shell, &bindings)?,
        error_names: format(shell, &error_names)?,
    })
}

/// What bindgen is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The file that is committed.
    Committed,
    /// Everything that the check compares.
    Comparison,
}

/// Runs bindgen over one header.
fn bind(shell: &Shell, header: &Header, purpose: Purpose) -> Result<String> {
    let include = include_folder(shell, header)?;
    prepare_libclang(shell)?;
    let compiler_include = cmd!(shell, "cc -print-file-name=include").quiet().read()?;
    // The first macro makes the header declare every version of every function under its exact
    // exported name, the old forms included; the second leaves its enums as users see them.
    let source = "#define __CUDA_API_VERSION_INTERNAL\n\
                  #define __CUDA_API_VERSION_INTERNAL_ODR\n\
                  #include <cuda.h>\n\
                  #include <cudaTypedefs.h>\n";
    let functions: Vec<String> = bound_functions()?
        .into_iter()
        .map(|function| function.name)
        .collect();
    let mut builder = bindgen::Builder::default()
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
        .allowlist_function(functions.join("|"))
        .allowlist_type("CUmem(Advise|_advise|Attach_flags|AllocationHandleType|Location).*")
        .allowlist_type("CUpointer_attribute|CUmem_range_attribute|CUmemPool_attribute")
        .allowlist_type("CUctx_flags|CUstream_flags|CUevent_flags|CUdevice_attribute")
        .allowlist_type("CUmemorytype|CUmemAllocationGranularity_flags|CUmemAccess_flags")
        .allowlist_var("CU_MEMHOST(ALLOC|REGISTER)_.*|CU_DEVICE_(CPU|INVALID)|CUDA_VERSION");
    builder = match purpose {
        // Written by hand, without the union that 13.x made of its second field: reading the whole
        // of a union of which safe code filled two bytes would be undefined behaviour.
        Purpose::Committed => builder
            .blocklist_type("CUmemLocation_st.*")
            .raw_line("pub use crate::location::CUmemLocation_st;"),
        Purpose::Comparison => builder.allowlist_type("PFN_cu[A-Za-z0-9]*_v[0-9]+"),
    };
    let bindings = builder.generate()?.to_string();
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

/// One line of `table.rs`.
struct Bound {
    /// The exact exported name.
    name: String,
    /// The version of the driver that first had it, as the driver counts.
    since: u32,
}

impl Bound {
    /// The name in C source.
    fn c_name(&self) -> &str {
        match self.name.rsplit_once("_v") {
            Some((base, version)) if version.bytes().all(|byte| byte.is_ascii_digit()) => base,
            _ => &self.name,
        }
    }
}

/// What `table.rs` binds.
fn bound_functions() -> Result<Vec<Bound>> {
    let path = workspace::root()?.join("crates/cumem-sys/src/table.rs");
    let text = fs::read_to_string(&path)?;
    let bound: Vec<Bound> = text
        .lines()
        .filter_map(|line| {
            let line = line.trim();
            let rest = line
                .strip_prefix("required ")
                .or_else(|| line.strip_prefix("optional "))?;
            let (name, rest) = rest.split_once('(')?;
            let (_, since) = rest.rsplit_once(" since ")?;
            Some(Bound {
                name: name.to_owned(),
                since: since.trim_end_matches(';').parse().ok()?,
            })
        })
        .collect();
    ensure!(!bound.is_empty(), "{} binds nothing", path.display());
    Ok(bound)
}

fn format(shell: &Shell, code: &str) -> Result<String> {
    let formatted = cmd!(shell, "rustfmt --edition 2024")
        .stdin(code)
        .quiet()
        .read()?;
    Ok(formatted + "\n")
}
