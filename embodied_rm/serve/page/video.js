// A video that the browser decodes: led to a moment, and what it shows there as a PNG file.

const INSIDE = 0.001;    // s: a moment a little behind the beginning of a frame is that frame's, however times are rounded
const LARGEST = 512;     // pixels a side, where the model takes any size
const FAR = 1e7;         // s: beyond the end of any video

export class Video {
  constructor(file) {
    this.name = file.name;
    this.video = Object.assign(document.createElement("video"), { muted: true, playsInline: true, preload: "auto" });
    this.canvas = document.createElement("canvas");
    this.url = this.video.src = URL.createObjectURL(file);
  }

  // Resolves when its size and length are known.
  async open() {
    await this.happens("loadeddata");
    if (Number.isFinite(this.video.duration)) return;
    await this.seek(FAR);  // a video as browsers record it does not say how long it is: only its end does
    await this.seek(0);
  }

  get seconds() { return this.video.duration; }
  get size() { return [this.video.videoHeight, this.video.videoWidth]; }

  happens(event) {
    const cannot = new Error(`${this.name}: this browser cannot decode it; H.264 in mp4 and VP8 or VP9 in webm are what most can`);
    if (this.video.error) return Promise.reject(cannot);
    return new Promise((resolve, reject) => {
      const over = new AbortController(), once = { signal: over.signal };
      this.video.addEventListener(event, () => { over.abort(); resolve(); }, once);
      this.video.addEventListener("error", () => { over.abort(); reject(cannot); }, once);
    });
  }

  async seek(seconds) {
    const there = this.happens("seeked");
    this.video.currentTime = seconds + INSIDE;
    await there;
  }

  async image(seconds, [height, width]) {
    await this.seek(seconds);
    Object.assign(this.canvas, { height, width });
    const pen = this.canvas.getContext("2d", { alpha: false });
    pen.imageSmoothingQuality = "high";
    pen.drawImage(this.video, 0, 0, width, height);
    return new Promise((resolve) => this.canvas.toBlob(resolve, "image/png"));
  }

  close() {
    this.video.removeAttribute("src");
    this.video.load();
    URL.revokeObjectURL(this.url);
  }
}

// The size of all images of a request: the model's, or that of the first video.
export function sizeOf(videos, image_size) {
  if (image_size) return image_size;
  const [height, width] = videos[0].size, scale = Math.min(1, LARGEST / Math.max(height, width));
  return [Math.max(1, Math.round(height * scale)), Math.max(1, Math.round(width * scale))];
}

// The moments that are judged: as long as all videos last.
export function momentsOf(videos, rate) {
  const seconds = Math.min(...videos.map((video) => video.seconds));
  return Array.from({ length: Math.max(1, Math.ceil(seconds * rate - 1e-6)) }, (_, k) => k / rate);
}

// The view that a video most likely shows: by its name, and no other video does.
export function guess(name, views, taken) {
  const stem = name.replace(/\.[^.]*$/, "");
  if (!views) return stem.replace(/[^\w.:/-]+/g, "_").slice(0, 64);
  const free = views.filter((view) => !taken.includes(view));
  const named = free.filter((view) => stem.toLowerCase().includes(view.toLowerCase()));
  return named.sort((a, b) => b.length - a.length)[0] ?? free[0] ?? views[0];
}
