//! Operand numbers that any language reproduces: counter-based splitmix64.

/// The stream that checksums are taken with.
const PROBE: u64 = 9;

fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

fn raw(seed: u64, stream: u64) -> impl Iterator<Item = u64> {
    let start = mix(seed.wrapping_mul(256).wrapping_add(stream));
    (1u64..).map(move |i| mix(start.wrapping_add(i.wrapping_mul(0x9E37_79B9_7F4A_7C15))))
}

/// Uniform in [0, 1).
pub fn unit(seed: u64, stream: u64) -> impl Iterator<Item = f64> {
    raw(seed, stream).map(|raw| (raw >> 11) as f64 * 2f64.powi(-53))
}

/// Uniform in [-1, 1).
pub fn values(seed: u64, stream: u64) -> impl Iterator<Item = f64> {
    unit(seed, stream).map(|unit| unit * 2.0 - 1.0)
}

/// The sum, the sum of absolute values, and the dot product with stream 9.
pub fn checksum(results: &[f64], seed: u64) -> [f64; 3] {
    results
        .iter()
        .zip(values(seed, PROBE))
        .fold([0.0; 3], |[sum, absolute, dot], (&x, probe)| [sum + x, absolute + x.abs(), dot + x * probe])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the protocol.
    #[test]
    fn streams_are_those_of_the_protocol() {
        for (seed, stream, start, first_raw, first_values) in [
            (
                1,
                1,
                0x0386_505d_e4d7_9228,
                [0x5e0c_233d_c56a_97c2, 0x3510_e2a7_92e1_1116, 0x53f3_9a0a_7d2a_046c],
                [-0.2652545879729291, -0.5854221994179549, -0.3441283654007492],
            ),
            (
                1,
                2,
                0xa791_4009_ec98_240a,
                [0xdbfe_163c_0126_049e, 0x1985_2087_3487_7f9a, 0x3821_f436_0d62_43ea],
                [0.7186916153898864, -0.8006247844522856, -0.5614638076851701],
            ),
            (
                7,
                9,
                0x539c_21bd_55fb_2bb8,
                [0xc075_d4e2_cb77_2195, 0x7604_c530_e111_3c29, 0x2e45_5242_a946_a28a],
                [0.503595934619562, -0.07797942269632174, -0.6385094809060758],
            ),
        ] {
            assert_eq!(mix(seed * 256 + stream), start);
            assert_eq!(raw(seed, stream).take(3).collect::<Vec<_>>(), first_raw);
            assert_eq!(values(seed, stream).take(3).collect::<Vec<_>>(), first_values);
        }
    }

    #[test]
    fn checksum_is_that_of_the_protocol() {
        let [sum, absolute, dot] = checksum(&[1.0, 2.0, 3.0, 4.0, 5.0], 1);
        assert_eq!([sum, absolute], [15.0, 15.0]);
        assert!((dot - -2.232272142195341).abs() < 1e-14);
    }
}
