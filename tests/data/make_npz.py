"""Makes the .npz files of this folder: `python3 make_npz.py`, with SciPy 1.17 and NumPy 2.4."""

import os

import numpy as np
import scipy.sparse as sp

FOLDER = os.path.dirname(os.path.abspath(__file__))


def save(name, matrix, **options):
    sp.save_npz(os.path.join(FOLDER, name), matrix, **options)


def csr(dtype, index=np.int32):
    """3x4 with an explicit zero and an empty row."""
    matrix = sp.csr_matrix(
        (np.array([1, 2, 0, -5]).astype(dtype), [0, 3, 1, 2], [0, 2, 2, 4]), shape=(3, 4)
    )
    matrix.indices, matrix.indptr = matrix.indices.astype(index), matrix.indptr.astype(index)
    return matrix


save("scipy_csr_f64.npz", csr(np.float64))
save("scipy_csc_f32_stored.npz", csr(np.float32).tocsc(), compressed=False)
save("scipy_csr_i64.npz", csr(np.int64, np.int64))
save("scipy_csr_bool.npz", csr(bool))
save("scipy_csr_complex.npz", csr(np.complex128))
save("scipy_csr_unsorted.npz", sp.csr_matrix(([1.0, 2.0, 3.0], [3, 0, 0], [0, 3, 3]), shape=(2, 4)))
save("scipy_csc_empty.npz", sp.csc_matrix((0, 5)))
save("scipy_coo_array_duplicates.npz", sp.coo_array(([1.5, 2.5, -1.0, 0.0], ([2, 0, 2, 1], [3, 1, 3, 0])), shape=(3, 4)))
save("scipy_coo_1d.npz", sp.coo_array(np.array([0.0, 1.0, 2.0])))
save("scipy_bsr.npz", csr(np.float64).tobsr((1, 2)))
save("scipy_dia.npz", sp.eye(3, format="dia"))

matrix = csr(np.float64)
np.savez_compressed(
    os.path.join(FOLDER, "scipy_csr_big_endian.npz"),
    format=b"csr",
    shape=matrix.shape,
    data=matrix.data.astype(">f8"),
    indices=matrix.indices.astype(">i4"),
    indptr=matrix.indptr.astype(">i4"),
)
