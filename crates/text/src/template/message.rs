//! The conversation as a template sees it, remembering which message was read last.
//!
//! When a template fails, the line alone rarely tells which of forty messages it could not digest.

use super::json::to_template;
use crate::TemplateError;
use minijinja::Value;
use minijinja::value::{Enumerator, Object, ObjectRepr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// No message was read yet.
const NONE: usize = usize::MAX;

/// The messages of one rendering.
pub(crate) struct Conversation {
    messages: Vec<Arc<Message>>,
    last_read: Arc<AtomicUsize>,
}

/// A message: the dictionary it is, reporting each look into it.
#[derive(Debug)]
struct Message {
    index: usize,
    role: String,
    fields: Value,
    last_read: Arc<AtomicUsize>,
}

impl Conversation {
    pub(crate) fn new(messages: &[serde_json::Value]) -> Result<Self, TemplateError> {
        let last_read = Arc::new(AtomicUsize::new(NONE));
        let message = |(index, json): (usize, &serde_json::Value)| {
            if !json.is_object() {
                let problem = format!("message {index} is no object with role and content: {json}");
                return Err(TemplateError::Messages { problem });
            }
            let role = json["role"].as_str().unwrap_or("none").to_owned();
            let fields = to_template(json);
            Ok(Arc::new(Message { index, role, fields, last_read: Arc::clone(&last_read) }))
        };
        let messages = messages.iter().enumerate().map(message).collect::<Result<_, _>>()?;
        Ok(Self { messages, last_read })
    }

    /// The list of messages.
    pub(crate) fn value(&self) -> Value {
        Value::from(
            self.messages
                .iter()
                .map(|message| Value::from_dyn_object(Arc::clone(message)))
                .collect::<Vec<_>>(),
        )
    }

    /// The message read last, ready to follow a place in a message; empty if none was.
    pub(crate) fn last_read(&self) -> String {
        let message = self.messages.get(self.last_read.load(Ordering::Relaxed));
        message.map_or_else(String::new, |message| {
            format!(", after reading message {} (role {:?})", message.index, message.role)
        })
    }
}

impl Object for Message {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.last_read.store(self.index, Ordering::Relaxed);
        self.fields.as_object()?.get_value(key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match self.fields.try_iter() {
            Ok(keys) => Enumerator::Values(keys.collect()),
            Err(_) => Enumerator::Empty,
        }
    }
}
