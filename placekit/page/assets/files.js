// Reads no more of a GGUF file than its header: bytes 0 to the end of the list of tensors.
"use strict";

const STEP = 4 << 20; // bytes that are read at a time
const SIZES = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8]; // of a value by its type; 8 is a text, 9 an array

class Header {
  constructor(file) {
    Object.assign(this, { file, at: 0, parts: [], begin: 0, view: new DataView(new ArrayBuffer(0)) });
  }

  async need(count) { // makes the next bytes those of the view
    if (this.at + count <= this.begin + this.view.byteLength) return;
    if (this.at + count > this.file.size) throw new Error(`${this.file.name} is cut off: its header goes on`);
    const size = Math.max(count, STEP);
    this.view = new DataView(await this.file.slice(this.at, this.at + size).arrayBuffer());
    this.begin = this.at;
  }

  async number(size) {
    await this.need(size);
    const at = this.at - this.begin;
    this.at += size;
    return size === 8 ? Number(this.view.getBigUint64(at, true)) : this.view.getUint32(at, true);
  }

  async skipText() {
    const length = await this.number(8); // which moves `at`, too
    this.at += length;
  }

  async skipValue(type) {
    if (type === 8) await this.skipText();
    else if (type === 9) {
      const [inner, count] = [await this.number(4), await this.number(8)];
      if (SIZES[inner]) this.at += SIZES[inner] * count;
      else for (let each = 0; each < count; each++) await this.skipValue(inner);
    } else if (SIZES[type]) this.at += SIZES[type];
    else throw new Error(`${this.file.name}: the header is damaged: a value is of type ${type}`);
  }
}

async function headerBytes(file) {
  const header = new Header(file);
  if (await header.number(4) !== 0x46554747) throw new Error(`${file.name} is no GGUF file: it does not start with GGUF`);
  await header.number(4); // version
  const [tensors, keys] = [await header.number(8), await header.number(8)];
  for (let key = 0; key < keys; key++) {
    await header.skipText();
    await header.skipValue(await header.number(4));
  }
  for (let tensor = 0; tensor < tensors; tensor++) {
    await header.skipText();
    const sizes = await header.number(4);
    header.at += 8 * sizes + 12; // sizes, type and offset
  }
  if (header.at > file.size) throw new Error(`${file.name} is cut off: its header goes on`);
  return header.at;
}

globalThis.headerBytes = headerBytes;
