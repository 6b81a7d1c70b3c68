//! Where chat templates come from.

use crate::TemplateError;
use serde_json::Value;
use std::path::Path;

/// The template used unless another fits better.
const DEFAULT: &str = "default";
/// The template used when tools are offered, if there is one.
const TOOL_USE: &str = "tool_use";

/// The text of a model's chat template, or of its named templates, and where they were found.
#[derive(Clone, Debug)]
pub struct TemplateSource {
    origin: String,
    /// Name and text.
    templates: Vec<(String, String)>,
}

impl TemplateSource {
    /// One template; `origin` says where it came from.
    pub fn new(origin: impl Into<String>, template: impl Into<String>) -> Self {
        Self { origin: origin.into(), templates: vec![(DEFAULT.to_owned(), template.into())] }
    }

    /// The template of a GGUF file, key `tokenizer.chat_template`.
    ///
    /// # Errors
    /// [`TemplateError::Missing`] if the file has none.
    pub fn from_gguf(file: &str, template: Option<&str>) -> Result<Self, TemplateError> {
        let origin = format!("{file}, key tokenizer.chat_template");
        match template {
            Some(template) => Ok(Self::new(origin, template)),
            None => Err(TemplateError::Missing { looked_at: file.to_owned() }),
        }
    }

    /// The template of a checkpoint folder: `chat_template.jinja`, else `chat_template` in `tokenizer_config.json`,
    /// which may be one text or a list of named ones, else `chat_template.json`.
    ///
    /// # Errors
    /// [`TemplateError::Missing`] if there is none, and [`TemplateError::Invalid`] for a file that cannot be read or
    /// understood.
    pub fn from_folder(folder: &Path) -> Result<Self, TemplateError> {
        let jinja = folder.join("chat_template.jinja");
        if let Some(template) = read(&jinja)? {
            return Ok(Self::new(jinja.display().to_string(), template));
        }
        for name in ["tokenizer_config.json", "chat_template.json"] {
            let path = folder.join(name);
            let Some(text) = read(&path)? else { continue };
            if let Some(source) = Self::from_config(&path.display().to_string(), &text)? {
                return Ok(source);
            }
        }
        Err(TemplateError::Missing { looked_at: folder.display().to_string() })
    }

    /// The field `chat_template` of a JSON file, or `None` if it is absent or null.
    ///
    /// # Errors
    /// [`TemplateError::Invalid`] if the text is no JSON or the field is neither a text nor a list of named texts.
    pub fn from_config(file: &str, text: &str) -> Result<Option<Self>, TemplateError> {
        let invalid = |problem: String| TemplateError::Invalid { origin: file.to_owned(), problem };
        let config: Value = serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
        let origin = format!("{file}, field chat_template");
        match config.get("chat_template") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(template)) => Ok(Some(Self::new(origin, template))),
            Some(Value::Array(list)) => {
                let mut templates: Vec<(String, String)> = Vec::with_capacity(list.len());
                for entry in list {
                    let (Some(name), Some(template)) = (entry["name"].as_str(), entry["template"].as_str())
                    else {
                        let problem =
                            "field chat_template: each entry needs a name and a template, both texts";
                        return Err(invalid(problem.to_owned()));
                    };
                    if templates.iter().any(|(other, _)| other == name) {
                        return Err(invalid(format!("field chat_template: the name {name:?} occurs twice")));
                    }
                    templates.push((name.to_owned(), template.to_owned()));
                }
                Ok(Some(Self { origin, templates }))
            }
            Some(other) => Err(invalid(format!(
                "field chat_template: expected a text or a list of named texts, found {other}"
            ))),
        }
    }

    /// Where the templates came from.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// Where the template of that name came from.
    pub(crate) fn origin_of(&self, name: &str) -> String {
        if self.templates.len() == 1 {
            self.origin.clone()
        } else {
            format!("{}, template {name:?}", self.origin)
        }
    }

    pub(crate) fn templates(&self) -> &[(String, String)] {
        &self.templates
    }

    /// The name of the template to use: `tool_use` if tools are offered and it exists, else `default`.
    pub(crate) fn choose(&self, with_tools: bool) -> Result<&str, TemplateError> {
        let wanted = if with_tools { [TOOL_USE, DEFAULT].as_slice() } else { &[DEFAULT] };
        let find = |name: &&str| self.templates.iter().find(|(other, _)| other == name);
        wanted.iter().find_map(find).map(|(name, _)| name.as_str()).ok_or_else(|| {
            let names: Vec<&str> = self.templates.iter().map(|(name, _)| name.as_str()).collect();
            TemplateError::Invalid {
                origin: self.origin.clone(),
                problem: format!("no template is named \"default\"; found {names:?}"),
            }
        })
    }
}

fn read(path: &Path) -> Result<Option<String>, TemplateError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(TemplateError::Invalid {
            origin: path.display().to_string(),
            problem: format!("cannot read: {error}"),
        }),
    }
}
