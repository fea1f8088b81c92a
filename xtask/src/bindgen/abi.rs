//! What one header says, reduced to what the ABI depends on.

use std::collections::BTreeMap;

use anyhow::Result;
use quote::ToTokens;

/// A struct or a union.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) size: String,
    pub(super) alignment: String,
    pub(super) offsets: BTreeMap<String, String>,
}

/// The declarations of one header.
#[derive(Default)]
pub(super) struct Abi {
    functions: BTreeMap<String, Vec<String>>,
    aliases: BTreeMap<String, String>,
    /// Layouts by the name of the type.
    pub(super) layouts: BTreeMap<String, Layout>,
    /// The values of all constants.
    pub(super) constants: BTreeMap<String, String>,
}

impl Abi {
    /// Reads what bindgen wrote.
    pub(super) fn parse(bindings: &str) -> Result<Self> {
        let mut abi = Self {
            layouts: layouts(bindings),
            ..Self::default()
        };
        for item in syn::parse_file(bindings)?.items {
            match item {
                syn::Item::ForeignMod(block) => {
                    for item in block.items {
                        if let syn::ForeignItem::Fn(function) = item {
                            let types = function.sig.inputs.iter().filter_map(argument_type);
                            abi.functions
                                .insert(function.sig.ident.to_string(), types.collect());
                        }
                    }
                }
                syn::Item::Type(alias) => {
                    let name = alias.ident.to_string();
                    if let Some(types) = pointed_function(&alias.ty) {
                        abi.functions.insert(name, types);
                    } else {
                        abi.aliases.insert(name, tokens(&alias.ty));
                    }
                }
                syn::Item::Use(import) => {
                    if let Some((name, target)) = renamed(&import.tree) {
                        abi.aliases.insert(name, target);
                    }
                }
                syn::Item::Impl(block) => {
                    for item in block.items {
                        if let syn::ImplItem::Const(constant) = item {
                            let value = match constant.expr {
                                syn::Expr::Call(call) => tokens(&call.args),
                                other => tokens(&other),
                            };
                            abi.constants.insert(constant.ident.to_string(), value);
                        }
                    }
                }
                syn::Item::Const(constant) if constant.ident != "_" => {
                    abi.constants
                        .insert(constant.ident.to_string(), tokens(&constant.expr));
                }
                _ => {}
            }
        }
        Ok(abi)
    }

    /// The parameter types of a function, or of a pointer to one: every alias followed, and the size
    /// of each struct behind one. The names of structs don't count, as they change with versions.
    pub(super) fn of(&self, function: &str) -> Option<String> {
        let types = self.functions.get(function)?;
        let resolved = types.iter().map(|of| self.resolve(of));
        Some(resolved.collect::<Vec<_>>().join(", "))
    }

    fn resolve(&self, of: &str) -> String {
        let words = of.split(' ').map(|word| {
            let mut name = word;
            while let Some(target) = self.aliases.get(name) {
                if target.contains(' ') {
                    // A pointer to an opaque type, whose name stays as it is.
                    return self.resolve(target);
                }
                name = target;
            }
            match self.layouts.get(name) {
                Some(layout) => format!("{}[{}]", stem(name), layout.size),
                None => stem(name).to_owned(),
            }
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Structs were renamed between versions without a change of layout.
fn stem(name: &str) -> &str {
    name.trim_end_matches("_v1").trim_end_matches("_st")
}

fn tokens(item: &impl ToTokens) -> String {
    item.to_token_stream().to_string()
}

fn argument_type(argument: &syn::FnArg) -> Option<String> {
    match argument {
        syn::FnArg::Typed(argument) => Some(tokens(&argument.ty)),
        syn::FnArg::Receiver(_) => None,
    }
}

/// The parameter types of `Option<unsafe extern "C" fn(..)>`.
fn pointed_function(of: &syn::Type) -> Option<Vec<String>> {
    let syn::Type::Path(path) = of else {
        return None;
    };
    let syn::PathArguments::AngleBracketed(inner) = &path.path.segments.last()?.arguments else {
        return None;
    };
    match inner.args.first()? {
        syn::GenericArgument::Type(syn::Type::BareFn(function)) => Some(
            function
                .inputs
                .iter()
                .map(|input| tokens(&input.ty))
                .collect(),
        ),
        _ => None,
    }
}

/// `pub use self::Target as Name`, as bindgen writes for C enums.
fn renamed(tree: &syn::UseTree) -> Option<(String, String)> {
    match tree {
        syn::UseTree::Path(path) => renamed(&path.tree),
        syn::UseTree::Rename(rename) => Some((rename.rename.to_string(), rename.ident.to_string())),
        _ => None,
    }
}

/// The layouts that bindgen's assertions state.
fn layouts(bindings: &str) -> BTreeMap<String, Layout> {
    let mut layouts = BTreeMap::<String, Layout>::new();
    for (what, rest) in assertions(bindings, "Size of ") {
        layouts.entry(what).or_default().size = rest;
    }
    for (what, rest) in assertions(bindings, "Alignment of ") {
        layouts.entry(what).or_default().alignment = rest;
    }
    for (what, rest) in assertions(bindings, "Offset of field: ") {
        if let Some((of, field)) = what.rsplit_once("::") {
            let layout = layouts.entry(of.to_owned()).or_default();
            layout.offsets.insert(field.to_owned(), rest);
        }
    }
    layouts
}

/// `["<kind><what>"][<expression> - <number>usize]`, as pairs of what and number.
fn assertions<'a>(
    bindings: &'a str,
    kind: &str,
) -> impl Iterator<Item = (String, String)> + use<'a> {
    let start = format!("[\"{kind}");
    let parts: Vec<&str> = bindings.split(start.as_str()).skip(1).collect();
    parts.into_iter().filter_map(|rest| {
        let (what, rest) = rest.split_once("\"]")?;
        let (_, rest) = rest.split_once(" - ")?;
        let (number, _) = rest.split_once("usize]")?;
        Some((what.to_owned(), number.to_owned()))
    })
}
