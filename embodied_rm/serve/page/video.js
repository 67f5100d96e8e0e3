// A video decoded by the browser: seeks to a time and returns the frame there as a PNG file.

const SEEK_OFFSET = 0.001;  // s after the start of a frame, so that rounding does not select the previous one
const MAX_SIDE = 512;       // pixels, if the model accepts any size
const END_SEEK = 1e7;       // s, beyond the end of any video
const FRAME_WAIT_MS = 100;  // longest wait for the new frame: none comes if the time lies in the current one

export class Video {
  constructor(file) {
    this.name = file.name;
    this.video = Object.assign(document.createElement("video"), { muted: true, playsInline: true, preload: "auto" });
    this.canvas = document.createElement("canvas");
    this.url = this.video.src = URL.createObjectURL(file);
  }

  // Resolve when size and duration are known.
  async open() {
    await this.waitFor("loadeddata");
    if (Number.isFinite(this.video.duration)) return;
    await this.seek(END_SEEK);  // recorded webm files have no duration: seeking to the end reveals it
    await this.seek(0);
  }

  get seconds() { return this.video.duration; }
  get size() { return [this.video.videoHeight, this.video.videoWidth]; }

  waitFor(event) {
    const error = new Error(`${this.name}: this browser cannot decode it; most browsers decode H.264 in mp4 and VP8 or VP9 in webm`);
    if (this.video.error) return Promise.reject(error);
    return new Promise((resolve, reject) => {
      const controller = new AbortController(), options = { signal: controller.signal };
      this.video.addEventListener(event, () => { controller.abort(); resolve(); }, options);
      this.video.addEventListener("error", () => { controller.abort(); reject(error); }, options);
    });
  }

  // Resolve when the frame at a time can be drawn: "seeked" alone may come before the frame does.
  async seek(seconds) {
    const shown = new Promise((resolve) => this.video.requestVideoFrameCallback(resolve));
    const seeked = this.waitFor("seeked");
    this.video.currentTime = seconds + SEEK_OFFSET;
    await seeked;
    await Promise.race([shown, new Promise((resolve) => setTimeout(resolve, FRAME_WAIT_MS))]);
  }

  async image(seconds, [height, width]) {
    await this.seek(seconds);
    Object.assign(this.canvas, { height, width });
    const context = this.canvas.getContext("2d", { alpha: false });
    context.imageSmoothingQuality = "high";
    context.drawImage(this.video, 0, 0, width, height);
    return new Promise((resolve) => this.canvas.toBlob(resolve, "image/png"));
  }

  close() {
    this.video.removeAttribute("src");
    this.video.load();
    URL.revokeObjectURL(this.url);
  }
}

// Return the size of all images of a request: the model's, or that of the first video.
export function imageSize(videos, modelSize) {
  if (modelSize) return modelSize;
  const [height, width] = videos[0].size, scale = Math.min(1, MAX_SIDE / Math.max(height, width));
  return [Math.max(1, Math.round(height * scale)), Math.max(1, Math.round(width * scale))];
}

// Return the times of the frames to score, until the first video ends.
export function frameTimes(videos, fps) {
  const seconds = Math.min(...videos.map((video) => video.seconds));
  return Array.from({ length: Math.max(1, Math.ceil(seconds * fps - 1e-6)) }, (_, k) => k / fps);
}

// Return the most likely view of a video: by its file name, among views that no other video has.
export function guessView(name, views, usedViews) {
  const stem = name.replace(/\.[^.]*$/, "");
  if (!views) return stem.replace(/[^\w.:/-]+/g, "_").slice(0, 64);
  const free = views.filter((view) => !usedViews.includes(view));
  const named = free.filter((view) => stem.toLowerCase().includes(view.toLowerCase()));
  return named.sort((a, b) => b.length - a.length)[0] ?? free[0] ?? views[0];
}
