//! NVIDIA's compilers: NVRTC, loaded at run time, and ptxas.

use libloading::{Library, Symbol};
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null;

/// The architecture that PTX is made for, and those that ptxas has to accept it for.
const VIRTUAL: &str = "compute_80";
const REAL: [&str; 2] = ["sm_80", "sm_90"];

type Program = *mut c_void;

/// From CUDA C++ to machine code.
pub struct Compiler {
    library: Library,
    options: Vec<CString>,
    ptxas: PathBuf,
}

impl Compiler {
    /// `cuda` is the folder `nvidia` of the wheels.
    pub fn new(cuda: &Path) -> Self {
        let path = cuda.join("cuda_nvrtc/lib/libnvrtc.so.12");
        // SAFETY: NVRTC runs nothing of ours when it is loaded.
        let library =
            unsafe { Library::new(&path) }.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let include = cuda.join("cuda_runtime/include");
        let options =
            [format!("--gpu-architecture={VIRTUAL}"), format!("--include-path={}", include.display())]
                .map(|option| CString::new(option).expect("no zero byte"));
        Self { library, options: options.into(), ptxas: cuda.join("cuda_nvcc/bin/ptxas") }
    }

    /// Compiles a kernel and leaves `<name>.cu` and `<name>.ptx` in `out`.
    pub fn compile(&self, out: &Path, name: &str, source: &str) -> Result<(), String> {
        let write = |extension: &str, bytes: &[u8]| {
            let path = out.join(format!("{name}.{extension}"));
            std::fs::write(&path, bytes).map(|()| path).map_err(|error| error.to_string())
        };
        write("cu", source.as_bytes())?;
        let ptx = write("ptx", &self.ptx(source)?)?;
        for architecture in REAL {
            let mut ptxas = Command::new(&self.ptxas);
            ptxas.args(["-arch", architecture, "-v", "-o", "/dev/null"]).arg(&ptx);
            let output = ptxas.output().map_err(|error| error.to_string())?;
            let messages = String::from_utf8_lossy(&output.stderr);
            if !output.status.success() {
                return Err(format!("ptxas {architecture}: {messages}"));
            }
            write(&format!("{architecture}.txt"), messages.as_bytes())?;
        }
        Ok(())
    }

    fn ptx(&self, source: &str) -> Result<Vec<u8>, String> {
        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
        let source = CString::new(source).map_err(|error| error.to_string())?;
        let options: Vec<_> = self.options.iter().map(|option| option.as_ptr()).collect();
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: the signatures are those of nvrtc.h, and the strings outlive the calls.
        unsafe {
            let create: Symbol<Create> = self.symbol(b"nvrtcCreateProgram")?;
            let compile: Symbol<Compile> = self.symbol(b"nvrtcCompileProgram")?;
            let status = create(&mut program, source.as_ptr(), null(), 0, null(), null());
            if status != 0 {
                return Err(format!("nvrtcCreateProgram: status {status}"));
            }
            let status = compile(program, options.len() as c_int, options.as_ptr());
            let text = if status == 0 {
                self.text(program, b"nvrtcGetPTXSize", b"nvrtcGetPTX")
            } else {
                let log = self.text(program, b"nvrtcGetProgramLogSize", b"nvrtcGetProgramLog")?;
                Err(String::from_utf8_lossy(&log).into_owned())
            };
            let destroy: Symbol<unsafe extern "C" fn(*mut Program) -> c_int> =
                self.symbol(b"nvrtcDestroyProgram")?;
            destroy(&mut program);
            text
        }
    }

    /// A text that NVRTC gives in two calls, its length and its bytes; without the zero at the end.
    ///
    /// # Safety
    /// The program exists, and the names are those of such a pair.
    unsafe fn text(&self, program: Program, size: &[u8], get: &[u8]) -> Result<Vec<u8>, String> {
        // SAFETY: the signatures of such a pair; the buffer has the length that was asked for.
        unsafe {
            let size: Symbol<unsafe extern "C" fn(Program, *mut usize) -> c_int> = self.symbol(size)?;
            let get: Symbol<unsafe extern "C" fn(Program, *mut u8) -> c_int> = self.symbol(get)?;
            let mut length = 0;
            size(program, &mut length);
            let mut bytes = vec![0; length];
            get(program, bytes.as_mut_ptr());
            bytes.pop();
            Ok(bytes)
        }
    }

    /// # Safety
    /// `T` is the signature of the function.
    unsafe fn symbol<T>(&self, name: &[u8]) -> Result<Symbol<'_, T>, String> {
        // SAFETY: as the caller promises.
        unsafe { self.library.get(name) }.map_err(|error| error.to_string())
    }
}
