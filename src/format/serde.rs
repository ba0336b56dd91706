//! Formats as data: their text.

use super::TensorFormat;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;

/// As the text that parses to it.
///
/// ```
/// use sparsegrad::TensorFormat;
///
/// let json = serde_json::to_string(&TensorFormat::csr()).unwrap();
/// assert_eq!(json, r#""(i, j) -> (i : dense, j : compressed)""#);
/// ```
impl Serialize for TensorFormat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// From its text.
///
/// # Errors
/// If the text is no format, with the message of the [`FormatError`](crate::error::FormatError).
///
/// ```
/// use sparsegrad::TensorFormat;
///
/// let csr: TensorFormat = serde_json::from_str(r#""(i, j) -> (i : dense, j : compressed)""#).unwrap();
/// assert_eq!(csr.name(), Some("CSR"));
/// let error = serde_json::from_str::<TensorFormat>(r#""(i, j) -> (i : dense)""#).unwrap_err();
/// assert!(error.to_string().starts_with("dimension j is not stored by any level"));
/// ```
impl<'de> Deserialize<'de> for TensorFormat {
    fn deserialize<De: Deserializer<'de>>(deserializer: De) -> Result<Self, De::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = TensorFormat;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the text of a tensor format")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<TensorFormat, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}
