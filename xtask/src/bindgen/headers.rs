//! Where NVIDIA's headers and libclang come from: wheels of PyPI, so that nothing has to be installed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use xshell::{Shell, cmd};

use crate::workspace;

/// A header to read.
pub(super) struct Header {
    /// The CUDA version, for people.
    pub(super) cuda: &'static str,
    /// The same as the driver counts.
    pub(super) version: u32,
    /// The PyPI package that carries it. Its version is fixed, so that a check means the same
    /// tomorrow; a newer header is taken up by changing it here.
    package: &'static str,
}

/// The oldest one, the last 12, and the one that the bindings are made from.
pub(super) const HEADERS: [&Header; 3] = [
    &Header {
        cuda: "11.8",
        version: 11080,
        package: "nvidia-cuda-runtime-cu11==11.8.89",
    },
    &Header {
        cuda: "12.9",
        version: 12090,
        package: "nvidia-cuda-runtime-cu12==12.9.79",
    },
    NEWEST,
];

/// The header that the bindings are made from.
pub(super) const NEWEST: &Header = &Header {
    cuda: "13.5",
    version: 13050,
    package: "nvidia-cuda-runtime==13.5.37",
};

const LIBCLANG: &str = "libclang==18.1.1";

/// Fetches everything that isn't here yet. The answer is why that can't be done on this machine, if
/// it can't.
pub(super) fn unavailable(shell: &Shell) -> Option<String> {
    let packages = HEADERS.iter().map(|header| header.package);
    packages
        .chain([LIBCLANG])
        .find_map(|package| unpack_wheel(shell, package).err())
        .map(|error| format!("the headers can't be fetched from PyPI here: {error:#}"))
}

/// Where the header's folder is, downloaded if it wasn't before.
pub(super) fn include_folder(shell: &Shell, header: &Header) -> Result<PathBuf> {
    let folder = unpack_wheel(shell, header.package)?;
    find(&folder, "cuda.h")?
        .parent()
        .map(Path::to_path_buf)
        .context("cuda.h is in no folder")
}

/// Has bindgen load libclang from its PyPI package, unless the caller chose one.
pub(super) fn prepare_libclang(shell: &Shell) -> Result<()> {
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
